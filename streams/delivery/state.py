"""What one shard of the deliver agent knows: what is kept in its state, and what only its memory has while work is under way.

    d/<source> <event> <subscription>          where a delivery stands: what recognises a duplicate and a return that is out of date
    s/<subscription>                           its failures in a row, and the slots granted to it
    o/<subscription>\\0<resource>               of an ordered resource: the next sequence, and which delivery is at its head
    p/<subscription>\\0<resource>\\0<offset>     a parked delivery, in the order of its events

Nothing of this is written while an attempt is under way, only with what came of it: an endpoint that hangs holds up no commit.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from streams.delivery.delivery import Delivery, decode
from streams.delivery.lane import Clock, Lane
from streams.delivery.pace import SlotState
from streams.delivery.rules import NO_STREAK, Streak
from streams.delivery.subscription import Subscription
from streams.log.records import Change
from streams.log.state import State

Standing = Literal["waits", "parked", "over"]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Where a delivery stands. `over` ones are forgotten at `expires_ms`."""

    standing: Standing
    generation: int
    attempts_spent: int
    due_ms: int
    expires_ms: int


class Health(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of a subscription's endpoint over a restart."""

    streak: Streak = NO_STREAK
    slots: SlotState = SlotState()


class Turn(msgspec.Struct, frozen=True, array_like=True):
    """An ordered resource. `head` is the delivery that the others wait for, also while it waits itself; `held`: it is dead."""

    next_sequence: int = 1
    head: str | None = None
    held: bool = False
    expires_ms: int = 0


_encode = msgspec.msgpack.Encoder().encode
_entry = msgspec.msgpack.Decoder(Entry).decode
_health = msgspec.msgpack.Decoder(Health).decode
_turn = msgspec.msgpack.Decoder(Turn).decode
NEW_HEALTH, NEW_TURN = Health(), Turn()


class ShardMemory:
    """One shard's state as the deliver agent's rules read it, and what is under way in it."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._lanes: dict[str, tuple[int, Lane]] = {}
        self._parked: set[str] | None = None
        self.under_way: set[bytes] = set()
        self.busy: set[tuple[str, str]] = set()
        """The resources of ordered subscriptions with an attempt under way."""
        self.disabled: dict[str, int] = {}
        """Revisions that this worker has disabled and the table does not show yet."""

    def lane(self, subscription: Subscription) -> Lane:
        """Its lane, with the limits of its latest revision."""
        known = self._lanes.get(subscription.id)
        if known is None:
            lane = Lane(subscription.pace_limits, self.health(subscription.id).slots, self._clock)
        else:
            revision, lane = known
            if revision == subscription.revision:
                return lane
            lane.pace.change_limits(subscription.pace_limits)
        self._lanes[subscription.id] = (subscription.revision, lane)
        return lane

    def is_disabled(self, subscription: Subscription) -> bool:
        """Whether it is, or is about to be."""
        return subscription.state == "DISABLED" or self.disabled.get(subscription.id, -1) >= subscription.revision

    # Kept

    def entry(self, delivery: Delivery) -> Entry | None:
        """Where a delivery stands; None: never seen, or long forgotten."""
        found = self._state.get(b"d/" + delivery.key)
        return None if found is None else _entry(found)

    def is_over(self, key: bytes) -> bool:
        """Whether nothing more happens to a delivery by itself."""
        found = self._state.get(b"d/" + key)
        return found is None or _entry(found).standing == "over"

    def health(self, subscription_id: str) -> Health:
        """What is remembered of an endpoint."""
        found = self._state.get(b"s/" + subscription_id.encode())
        return NEW_HEALTH if found is None else _health(found)

    def turn(self, subscription_id: str, resource: str) -> Turn:
        """Whose turn it is."""
        found = self._state.get(_turn_key(subscription_id, resource))
        return NEW_TURN if found is None else _turn(found)

    def parked(self, subscription_id: str, resource: str | None = None) -> Iterator[tuple[bytes, Delivery]]:
        """What is parked, in the order of its events: of one resource, or of all."""
        prefix = f"p/{subscription_id}\0" if resource is None else f"p/{subscription_id}\0{resource}\0"
        return ((key, decode(value)) for key, value in self._state.scan(prefix.encode()))

    def is_parked_before(self, delivery: Delivery) -> bool:
        """Whether an earlier event of its resource is parked."""
        prefix = f"p/{delivery.subscription_id}\0{delivery.resource or ''}\0".encode()
        first = next(self._state.scan(prefix), None)
        return first is not None and first[0] < parked_key(delivery)

    def with_parked(self) -> set[str]:
        """The subscriptions that may have something parked: looked for once, then kept by those who park."""
        if self._parked is None:
            self._parked = {key[2:].split(b"\0", 1)[0].decode() for key, _ in self._state.scan(b"p/")}
        return self._parked


# Changes


def entry_change(delivery: Delivery, standing: Standing, expires_ms: int = 0) -> Change:
    """Where a delivery stands from now on."""
    entry = Entry(standing, delivery.generation, delivery.attempts_spent, delivery.due_ms or 0, expires_ms)
    return b"d/" + delivery.key, _encode(entry)


def health_change(subscription_id: str, health: Health) -> Change:
    """What is remembered of an endpoint from now on."""
    return b"s/" + subscription_id.encode(), _encode(health)


def turn_change(subscription_id: str, resource: str, turn: Turn) -> Change:
    """Whose turn it is from now on."""
    return _turn_key(subscription_id, resource), _encode(turn)


def parked_key(delivery: Delivery) -> bytes:
    """Where a delivery is parked."""
    place = int(delivery.origin["offset"]).to_bytes(8, "big")
    return f"p/{delivery.subscription_id}\0{delivery.resource or ''}\0".encode() + place


def expires_ms(key: bytes, value: bytes) -> int | None:
    """When an entry may be forgotten: a delivery that is over, and a resource that nothing waits for, each after its time."""
    if key[:2] == b"d/":
        entry = _entry(value)
        return entry.expires_ms if entry.standing == "over" else None
    if key[:2] == b"o/":
        turn = _turn(value)
        return turn.expires_ms if turn.head is None else None
    return None


def _turn_key(subscription_id: str, resource: str) -> bytes:
    return f"o/{subscription_id}\0{resource}".encode()
