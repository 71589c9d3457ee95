"""The order of an ordered subscription's resources: who waits behind whom, and whose turn comes next. Pure but for the shard's memory.

While one delivery of a resource is under way or waits, the later ones are parked in the state; when it is through, the first of
them goes back through the log. A paused subscription's deliveries are parked in the same way.
"""

import msgspec

from streams.delivery import delivery as deliveries
from streams.delivery.delivery import Delivery
from streams.delivery.state import PLACE_BYTES, ShardMemory, Turn, parked_key, turn_change, waits
from streams.delivery.subscription import Subscription
from streams.log.records import Change, Write

DAY_MS = 24 * 3_600_000
TURN_KEPT_MS = 30 * DAY_MS
"""How long a quiet resource's sequence is remembered: as long as its events."""
LOOKED_AT_ONCE = 500
"""How many parked deliveries of a subscription, or resources of an ordered one, are looked at in one turn."""


def why_parked(delivery: Delivery, subscription: Subscription, memory: ShardMemory) -> str | None:
    """Tell what a delivery waits for before it may be attempted: its subscription's pause, or its turn; None: for nothing."""
    if subscription.state == "PAUSED":
        return "PAUSED"
    if not subscription.ordered or delivery.resource is None:
        return None
    if (subscription.id, delivery.resource) in memory.busy:
        return "PARKED"
    head = memory.turn(subscription.id, delivery.resource).head
    if head is not None:
        return None if head == name_of(delivery) else "PARKED"
    return "PARKED" if memory.is_parked_before(delivery) else None


def keep_head(
    delivery: Delivery, subscription: Subscription, memory: ShardMemory, now_ms: int, changes: list[Change], held: bool = False
) -> None:
    """It stays the one that its resource waits for."""
    if not subscription.ordered or delivery.resource is None:
        return
    turn = memory.turn(subscription.id, delivery.resource)
    after = Turn(max(turn.next_sequence, (delivery.sequence or 0) + 1), name_of(delivery), held, now_ms + TURN_KEPT_MS)
    changes.append(turn_change(subscription.id, delivery.resource, after))


def go_on(
    delivery: Delivery, subscription: Subscription | None, memory: ShardMemory, now_ms: int, writes: list[Write], changes: list[Change]
) -> None:
    """It is through: the next parked one of its resource has its turn."""
    if delivery.resource is None or (subscription is not None and not subscription.ordered):
        return
    turn = memory.turn(delivery.subscription_id, delivery.resource)
    next_sequence = max(turn.next_sequence, (delivery.sequence or 0) + 1)
    if turn.head is not None and turn.head != name_of(delivery):  # cancelled behind another, which its resource goes on waiting for
        changes.append(turn_change(delivery.subscription_id, delivery.resource, msgspec.structs.replace(turn, next_sequence=next_sequence)))
        return
    others = (each for each in memory.parked(delivery.subscription_id, delivery.resource) if each[0] != parked_key(delivery))
    first = next(others, None)
    head = None
    if first is not None and (subscription is None or subscription.state == "ACTIVE"):
        head = name_of(first[1])
        release(*first, now_ms, writes, changes)
    after = Turn(next_sequence, head, held=False, expires_ms=now_ms + TURN_KEPT_MS)
    changes.append(turn_change(delivery.subscription_id, delivery.resource, after))


def is_head(delivery: Delivery, memory: ShardMemory) -> bool:
    """Whether its resource waits for it."""
    return delivery.resource is not None and memory.turn(delivery.subscription_id, delivery.resource).head == name_of(delivery)


def leave(delivery: Delivery, subscription: Subscription | None, memory: ShardMemory, now_ms: int, changes: list[Change]) -> None:
    """Its resource waits for it no longer, and nobody follows: all of them are cancelled."""
    if delivery.resource is None or subscription is None or not is_head(delivery, memory):
        return
    turn = memory.turn(subscription.id, delivery.resource)
    changes.append(turn_change(subscription.id, delivery.resource, Turn(turn.next_sequence, None, False, now_ms + TURN_KEPT_MS)))


def release_some(
    subscription_id: str,
    subscription: Subscription | None,
    memory: ShardMemory,
    now_ms: int,
    writes: list[Write],
    changes: list[Change],
) -> bool:
    """Let some go, from where the last look ended; whether something may still be parked."""
    start, place = memory.looked_up_to.pop(subscription_id, b""), b""
    left = bool(start)
    for _ in range(LOOKED_AT_ONCE):
        found = next(memory.parked(subscription_id, start=place or start), None)
        if found is None:
            return left
        key, delivery = found
        place = key + b"\0"
        resource = delivery.resource
        if resource is not None and subscription is not None and subscription.ordered and subscription.state != "DISABLED":
            place = key[:-PLACE_BYTES] + b"\xff" * PLACE_BYTES  # the later ones of a resource wait for the first
            left = True
            turn = memory.turn(subscription_id, resource)
            if not _is_free(delivery, resource, subscription, turn, memory):
                continue
            after = Turn(turn.next_sequence, name_of(delivery), held=False, expires_ms=now_ms + TURN_KEPT_MS)
            changes.append(turn_change(subscription_id, resource, after))
        release(key, delivery, now_ms, writes, changes)
    memory.looked_up_to[subscription_id] = place
    return True


def _is_free(parked: Delivery, resource: str, subscription: Subscription, turn: Turn, memory: ShardMemory) -> bool:
    """Whether nothing is before a resource's first parked one; a head may have ended while the subscription was not ordered."""
    if (subscription.id, resource) in memory.busy:
        return False
    if turn.head is None or turn.head == name_of(parked):
        return True
    if turn.held:
        return not subscription.holds_behind_dead_letter
    return memory.is_over(f"{turn.head} {subscription.id}".encode())


def name_of(delivery: Delivery) -> str:
    """Names an event within its resource."""
    return f"{delivery.source} {delivery.event_id}"


def release(key: bytes, delivery: Delivery, now_ms: int, writes: list[Write], changes: list[Change]) -> None:
    """Send a parked delivery back through the log."""
    freed = msgspec.structs.replace(delivery, waits_for=None, due_ms=now_ms)
    sent = deliveries.sent_back(freed, now_ms)
    writes.append(sent)
    changes += [(key, None), *waits(freed, sent.value)]
