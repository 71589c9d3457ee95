"""A batch: how many of its items have ended, and when that makes it complete. Pure; the items themselves are kept one by one."""

from typing import Literal

import msgspec

from streams.payouts.payout import State

Standing = Literal["open", "stuck", "succeeded", "failed"]
BatchState = Literal["OPEN", "COMPLETED", "FAILED", "PARTIALLY_COMPLETED"]


class Batch(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A header and its counts. New fields go to the end."""

    batch_id: str
    merchant: str
    items_total: int
    amount_minor_total: int | None
    currency: str | None
    created_ms: int
    state: BatchState = "OPEN"
    reason: str | None = None
    succeeded: int = 0
    failed: int = 0
    stuck: int = 0
    amount_minor_succeeded: int = 0
    updated_ms: int = 0

    @property
    def processed(self) -> int:
        """Items that have ended."""
        return self.succeeded + self.failed

    @property
    def key(self) -> bytes:
        """Names it in topics."""
        return f"{self.merchant} {self.batch_id}".encode()


class Item(msgspec.Struct, frozen=True, array_like=True):
    """One place in a batch: which payout has it, and how that stands. It is counted once, however often it is asked for."""

    payout_id: str
    standing: Standing
    updated_ms: int


def standing_of(state: State) -> Standing:
    """How an item stands whose payout stands so."""
    if state == "SUCCESS":
        return "succeeded"
    if state in ("FAILED", "CANCELLED"):
        return "failed"
    return "stuck" if state == "STUCK" else "open"


def counted(batch: Batch, before: Standing | None, after: Standing, amount_minor: int, now_ms: int) -> Batch:
    """The batch after one of its items stands otherwise; `before` is None for an item that was not there yet."""
    if before in ("succeeded", "failed"):
        return batch
    batch = msgspec.structs.replace(
        batch,
        succeeded=batch.succeeded + (after == "succeeded"),
        failed=batch.failed + (after == "failed"),
        stuck=batch.stuck + (after == "stuck") - (before == "stuck"),
        amount_minor_succeeded=batch.amount_minor_succeeded + (amount_minor if after == "succeeded" else 0),
        updated_ms=now_ms,
    )
    return _completed(batch) if batch.processed == batch.items_total else batch


def _completed(batch: Batch) -> Batch:
    state: BatchState = "PARTIALLY_COMPLETED" if batch.succeeded and batch.failed else "COMPLETED" if batch.succeeded else "FAILED"
    reason = batch.reason
    if state == "COMPLETED" and batch.amount_minor_total not in (None, batch.amount_minor_succeeded):
        reason = f"control_sum_differs: its header says {batch.amount_minor_total}"
    return msgspec.structs.replace(batch, state=state, reason=reason)
