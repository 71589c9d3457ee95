"""A payout: everything that is known of one. It is changed by making another."""

from typing import Any, Literal

import msgspec

State = Literal[
    "ACCEPTED", "SCHEDULED", "RESERVED", "SUBMITTING", "POLLING", "POSTING", "VOIDING", "SUCCESS", "FAILED", "CANCELLED", "STUCK"
]
"""As payout_status.avsc has them, and ACCEPTED: it is validated, and its first step is taken in the same breath."""

STATES: tuple[State, ...] = (
    "ACCEPTED", "SCHEDULED", "RESERVED", "SUBMITTING", "POLLING", "POSTING", "VOIDING", "SUCCESS", "FAILED", "CANCELLED", "STUCK",
)  # fmt: skip
ENDED: frozenset[State] = frozenset({"SUCCESS", "FAILED", "CANCELLED"})

NOTES_MAX = 200
"""Steps that change no state are told until the history is so long; a caller who repeats himself must not make it grow for ever."""


DETAIL_MAX = 500
"""Characters of what others say that are kept in a history: it must never grow too large to be written."""


class Cause(msgspec.Struct, frozen=True, array_like=True):
    """The record that brought a step about."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Transition(msgspec.Struct, frozen=True, array_like=True):
    """One step; from and to the same state when something was only noted."""

    at_ms: int
    from_state: State | None
    to_state: State
    message: str
    detail: str | None = None
    cause: Cause | None = None


class Resolution(msgspec.Struct, frozen=True, array_like=True):
    """A person's word on a stuck payout; with four eyes it waits for `confirmed_by`."""

    command_id: str
    status: Literal["SUCCESS", "FAILED"]
    resolved_by: str
    notes: str
    resolved_ms: int
    confirmed_by: str | None = None
    takes_effect: bool = False


class Payout(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One payout, as it is kept in the state. New fields go to the end."""

    payout_id: str
    merchant: str
    beneficiary_id: str
    channel: str
    currency: str
    amount_minor: int
    fee_minor: int
    idempotency_key: str
    fingerprint: str
    command_id: str
    created_ms: int
    scheduled_ms: int | None = None
    batch_id: str | None = None
    batch_index: int | None = None
    trace_id: str | None = None
    metadata: dict[str, str] = {}
    beneficiary: dict[str, Any] | None = None
    """As it was when the money was reserved: each try of a submission says the same."""
    state: State = "ACCEPTED"
    reason: str | None = None
    compensations: tuple[str, ...] = ()
    """What is to be undone if it fails; registered before the step that it undoes."""
    start_ms: int | None = None
    deadline_ms: int | None = None
    submissions: int = 0
    unsent: int = 0
    polls: int = 0
    poll_failures: int = 0
    not_found: int = 0
    was_taken: bool = False
    """The channel has said that it has it: what it says then of not knowing it is not believed."""
    was_polled_since_ms: int | None = None
    under_way_until_ms: int = 0
    """Until when a submission that was not answered may still reach the channel."""
    settled_ms: int = 0
    """From when on a channel that does not know it can be believed."""
    channel_reference: str | None = None
    channel_fee_minor: int | None = None
    ledger_tries: int = 0
    ends_as: Literal["FAILED", "CANCELLED"] = "FAILED"
    last_answer: str | None = None
    resolution: Resolution | None = None
    history: tuple[Transition, ...] = ()
    updated_ms: int = 0
    expires_ms: int = 0

    @property
    def net_minor(self) -> int:
        """What the beneficiary gets."""
        return self.amount_minor - self.fee_minor

    @property
    def tries(self) -> int:
        """Submissions that may have reached the channel."""
        return self.submissions - self.unsent

    @property
    def key(self) -> bytes:
        """Names it in topics; neither a merchant nor a payout's id has a space."""
        return f"{self.merchant} {self.payout_id}".encode()


def moved(payout: Payout, to: State, message: str, now_ms: int, detail: str | None = None, **changes: Any) -> Payout:
    """Take a step, and tell it in the history."""
    before = None if payout.state == "ACCEPTED" else payout.state
    step = Transition(now_ms, before, to, message[:DETAIL_MAX], detail and detail[:DETAIL_MAX])
    return msgspec.structs.replace(payout, state=to, history=(*payout.history, step), updated_ms=now_ms, **changes)


def noted(payout: Payout, message: str, now_ms: int, detail: str | None = None, **changes: Any) -> Payout:
    """Tell something in the history that changes no state."""
    if len(payout.history) >= NOTES_MAX:
        return msgspec.structs.replace(payout, updated_ms=now_ms, **changes)
    return moved(payout, payout.state, message, now_ms, detail, **changes)
