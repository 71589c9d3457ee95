"""Deliveries that nobody wants any more: cancelled where they wait, and kept where they may be wanted back."""

import msgspec

from streams.delivery import delivery as deliveries
from streams.delivery import order
from streams.delivery.delivery import Delivery
from streams.delivery.state import KEPT_MS, ShardMemory, entry_change, kept_change, no_copies
from streams.delivery.subscription import Subscription, Subscriptions
from streams.log.records import Change, Write

DELETED = "its subscription was deleted"
DISABLED = "its subscription is disabled; replay it once it is enabled"
CANCELLED_AT_ONCE = 200
"""How many deliveries are cancelled in one turn."""
NO_REVISION = -1
"""What a deleted subscription counts as."""


def cancel(
    delivery: Delivery, why: str, memory: ShardMemory, now_ms: int, remembered_ms: int, writes: list[Write], changes: list[Change],
    *, kept: bool,
) -> Delivery:  # fmt: skip
    """It is over. One that is kept is remembered for as long, so that a replay of what was missed does not send it beside."""
    over = msgspec.structs.replace(delivery, slot_ms=None, due_ms=None, waits_for=None)
    writes.append(deliveries.status(over, "CANCELLED", now_ms, reason=why))
    changes.append(entry_change(over, "over", now_ms + (max(remembered_ms, KEPT_MS) if kept else remembered_ms)))
    changes += no_copies(delivery)
    if kept:
        changes.append(kept_change(over, now_ms))
    return over


def cancel_unwanted(
    subscriptions: Subscriptions, memory: ShardMemory, now_ms: int, remembered_ms: int, writes: list[Write], changes: list[Change]
) -> None:
    """Cancel some of what waits or is parked for subscriptions that were disabled or deleted."""
    unwanted: list[tuple[str, Subscription | None]] = [*subscriptions.disabled.items(), *((name, None) for name in subscriptions.deleted)]
    left = CANCELLED_AT_ONCE
    for name, subscription in unwanted:
        revision = NO_REVISION if subscription is None else subscription.revision
        if memory.swept.get(name) == revision:
            continue
        left -= _cancel_some(name, subscription, left, memory, now_ms, remembered_ms, writes, changes)
        if left <= 0:
            return
        memory.swept[name] = revision


def _cancel_some(
    name: str, subscription: Subscription | None, count_max: int, memory: ShardMemory, now_ms: int, remembered_ms: int,
    writes: list[Write], changes: list[Change],
) -> int:  # fmt: skip
    """How many were cancelled. What is under way tells by itself when it comes to wait."""
    count = 0
    for _, waiting in memory.waiting(name):
        if count == count_max:
            return count
        if waiting.key in memory.under_way:
            continue
        over = cancel(waiting, _why(subscription), memory, now_ms, remembered_ms, writes, changes, kept=subscription is not None)
        order.leave(over, subscription, memory, now_ms, changes)
        count += 1
    for key, parked in memory.parked(name):
        if count == count_max:
            return count
        changes.append((key, None))
        over = cancel(parked, _why(subscription), memory, now_ms, remembered_ms, writes, changes, kept=subscription is not None)
        order.leave(over, subscription, memory, now_ms, changes)
        count += 1
    return count


def _why(subscription: Subscription | None) -> str:
    return DELETED if subscription is None else DISABLED
