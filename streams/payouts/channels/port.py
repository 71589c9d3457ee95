"""What a payment channel is: it can be asked to pay, and asked how that stands; and what it may answer."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

import schemas
from streams.errors import MalformedRecord
from streams.log.records import Record
from streams.payouts.messages import Action, Outcome


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as payout_task.avsc has it."""

    id: str
    payout_id: str
    merchant: str
    channel: str
    action: Action
    number: int
    idempotency_key: str
    amount_minor: int
    currency: str
    beneficiary: Mapping[str, Any] | None
    channel_reference: str | None
    timeout_ms: int
    issued_ms: int
    trace_id: str | None
    metadata: Mapping[str, str]


class Answer(msgspec.Struct, frozen=True):
    """What came of a call.

    ACCEPTED, PENDING  the channel has it                   ERROR     this call certainly had no effect; it may be tried again
    SUCCESS            it has paid                          LOST      nobody knows whether it had one
    FAILED, REFUSED    it has not paid and never will       NOT_SENT  the call was not begun
    NOT_FOUND          it does not know this key
    """

    outcome: Outcome
    reference: str | None = None
    code: str | None = None
    detail: str | None = None
    fee_minor: int | None = None
    retry_after_ms: int | None = None


class Channel(Protocol):
    """One payment channel. Neither call raises for what the channel does: whatever goes wrong is an answer."""

    async def submit(self, task: Task, expires_ms: int) -> Answer:
        """Ask it to pay, unless it is later than `expires_ms`. The same key again is the same payment."""

    async def poll(self, task: Task) -> Answer:
        """Ask how the payment of a key stands."""


def task_in(record: Record) -> Task:
    """Read a record of the tasks topic."""
    fields = schemas.decode(record.value or b"", schemas.PAYOUT_TASK)
    if fields["action"] not in ("SUBMIT", "POLL"):
        raise MalformedRecord(f"task {fields['id'][:80]!r} asks for {fields['action']}, which this version does not know")
    return Task(**fields)
