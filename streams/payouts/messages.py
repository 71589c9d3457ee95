"""What moves a payout on, and what a step asks for: the words between the saga and whoever drives it."""

from typing import Literal

import msgspec

Timer = Literal["start", "deadline", "ledger"]
Action = Literal["SUBMIT", "POLL"]
Outcome = Literal["ACCEPTED", "PENDING", "SUCCESS", "FAILED", "REFUSED", "NOT_FOUND", "ERROR", "LOST", "NOT_SENT"]


class Message(msgspec.Struct, frozen=True):
    """Base of all that moves a payout on."""


class Begin(Message, frozen=True):
    """Its command was found good."""


class Due(Message, frozen=True):
    """A timer ran out. `mark` is what it was set for: a payout that waits for something else by now ignores it."""

    timer: Timer
    mark: int


class Unfit(Message, frozen=True):
    """A scheduled payout was looked at again when its time came, and cannot be paid any more."""

    reason: str
    detail: str


class Reserved(Message, frozen=True):
    """The ledger holds its money."""


class Posted(Message, frozen=True):
    """The ledger has booked that it was paid."""


class Voided(Message, frozen=True):
    """The ledger has given its money back."""


class LedgerRefused(Message, frozen=True):
    """The ledger did not do what it was asked for."""

    reason: str
    detail: str


class Replied(Message, frozen=True):
    """What came of a call to the channel. `number` counts the calls of each action."""

    action: Action
    number: int
    outcome: Outcome
    reference: str | None = None
    code: str | None = None
    detail: str | None = None
    fee_minor: int | None = None
    retry_after_ms: int | None = None


class Cancel(Message, frozen=True):
    """Somebody wants it not to be paid."""

    command_id: str
    by: str | None = None
    reason: str | None = None


class Resolve(Message, frozen=True):
    """A person says how a stuck payout ended. `confirms` names the command of the first person, where a second one is asked for."""

    command_id: str
    status: Literal["SUCCESS", "FAILED"]
    by: str
    notes: str = ""
    confirms: str | None = None
    four_eyes: bool = False


MESSAGES: tuple[type[Message], ...] = (
    Begin, Due, Unfit, Reserved, Posted, Voided, LedgerRefused, Replied, Cancel, Resolve,
)  # fmt: skip


class Effect(msgspec.Struct, frozen=True):
    """Base of all that a step asks for."""


class Reserve(Effect, frozen=True):
    """Of the ledger; answered by Reserved or LedgerRefused."""


class Post(Effect, frozen=True):
    """Of the ledger; answered by Posted or LedgerRefused."""


class Void(Effect, frozen=True):
    """Of the ledger; answered by Voided or LedgerRefused."""


class Call(Effect, frozen=True):
    """Of the channel, not before it is due."""

    action: Action
    number: int
    due_ms: int


class Wait(Effect, frozen=True):
    """Of the ladder: a Due when its time has come."""

    timer: Timer
    mark: int
    due_ms: int


class Tell(Effect, frozen=True):
    """Of everybody who listens to the merchant's events."""

    event: str


class Alert(Effect, frozen=True):
    """Of the operators."""

    event: str
    severity: Literal["INFO", "WARNING", "CRITICAL"]
    summary: str
