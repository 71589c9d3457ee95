"""What one shard of the deliver agent knows: what is kept in its state, and what only its memory has while work is under way.

    d/<source> <event> <subscription>          where a delivery stands: what recognises a duplicate and a return that is out of date
    s/<subscription>                           its failures in a row, and the slots granted to it
    o/<subscription>\\0<resource>               of an ordered resource: the next sequence, and which delivery is at its head
    p/<subscription>\\0<resource>\\0<offset>     a parked delivery, in the order of its events
    w/<subscription>\\0<event> <source>         one that waits on the ladder, or is on its way back: to be found by who cancels it
    c/<subscription>\\0<offset>                one that was cancelled when its subscription was disabled, to be wanted back

Nothing of this is written while an attempt is under way, only with what came of it: an endpoint that hangs holds up no commit.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from streams.delivery.delivery import Delivery, decode, encode
from streams.delivery.lane import Clock, Lane, SideLane
from streams.delivery.pace import SlotState
from streams.delivery.rules import NO_STREAK, Streak
from streams.delivery.subscription import Subscription
from streams.log.records import Change
from streams.log.state import State

Standing = Literal["waits", "parked", "over"]

DAY_MS = 24 * 3_600_000
KEPT_MS = 30 * DAY_MS
"""How long a cancelled delivery can be wanted back: as long as its event."""
KEPT_DAY_BYTES = 2
PLACE_BYTES = 8


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Where a delivery stands. `over` ones are forgotten at `expires_ms`; the rest is what a replay of it needs."""

    standing: Standing
    generation: int
    attempts_spent: int
    due_ms: int
    expires_ms: int
    sequence: int = 0
    payload_version: str = ""
    replay_id: str = ""


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
        self._side_lanes: dict[str, tuple[int, SideLane]] = {}
        self._parked: set[str] | None = None
        self.under_way: set[bytes] = set()
        self.busy: set[tuple[str, str]] = set()
        """The resources of ordered subscriptions with an attempt under way."""
        self.disabled: dict[str, int] = {}
        """Revisions that this worker has disabled and the table does not show yet."""
        self.swept: dict[str, int] = {}
        """Revisions of subscriptions without any delivery left to cancel."""
        self.looked_up_to: dict[str, bytes] = {}
        """Where the last look through a subscription's parked deliveries ended."""

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

    def side_lane(self, subscription: Subscription) -> SideLane:
        """The one beside it, for replays."""
        known = self._side_lanes.get(subscription.id)
        if known is None or known[0] != subscription.revision:
            lane = SideLane(self.lane(subscription), subscription.pace_limits, self._clock)
            known = self._side_lanes[subscription.id] = (subscription.revision, lane)
        return known[1]

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

    def parked(self, subscription_id: str, resource: str | None = None, start: bytes = b"") -> Iterator[tuple[bytes, Delivery]]:
        """What is parked, in the order of its events: of one resource, or of all from a place on."""
        prefix = f"p/{subscription_id}\0" if resource is None else f"p/{subscription_id}\0{resource}\0"
        return ((key, decode(value)) for key, value in self._state.scan(prefix.encode(), start))

    def parked_of_event(self, subscription_id: str, event_id: str) -> Iterator[tuple[bytes, Delivery]]:
        """An event's parked deliveries; only what names it is decoded."""
        named = event_id.encode()
        found = ((key, decode(value)) for key, value in self._state.scan(f"p/{subscription_id}\0".encode()) if named in value)
        return ((key, delivery) for key, delivery in found if delivery.event_id == event_id)

    def waiting(self, subscription_id: str, event_id: str | None = None) -> Iterator[tuple[bytes, Delivery]]:
        """What waits on the ladder or is on its way back: of one event, or of all."""
        prefix = f"w/{subscription_id}\0" if event_id is None else f"w/{subscription_id}\0{event_id} "
        return ((key, decode(value)) for key, value in self._state.scan(prefix.encode()))

    def waiting_copy(self, delivery: Delivery) -> Delivery | None:
        """A delivery as it waits."""
        found = self._state.get(waiting_key(delivery))
        return None if found is None else decode(found)

    def kept(self, subscription_id: str) -> Iterator[tuple[bytes, Delivery]]:
        """What was cancelled when its subscription was disabled, in the order of its events."""
        return ((key, decode(value[KEPT_DAY_BYTES:])) for key, value in self._state.scan(f"c/{subscription_id}\0".encode()))

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
    entry = Entry(
        standing,
        delivery.generation,
        delivery.attempts_spent,
        delivery.due_ms or 0,
        expires_ms,
        delivery.sequence or 0,
        delivery.payload_version or "",
        delivery.replay_id or "",
    )
    return b"d/" + delivery.key, _encode(entry)


def waits(delivery: Delivery, value: bytes | None) -> list[Change]:
    """It waits from now on, as the record says that it waits in."""
    changes = [entry_change(delivery, "waits"), (waiting_key(delivery), value)]
    if delivery.replay_id is not None:
        changes.append((kept_key(delivery), None))
    return changes


def no_copies(before: Delivery) -> list[Change]:
    """It waits no longer: nothing for a delivery that was over at its first attempt, the usual case."""
    if before.replay_id is not None:
        return [(waiting_key(before), None), (kept_key(before), None)]
    return [] if before.due_ms is None else [(waiting_key(before), None)]


def kept_change(cancelled: Delivery, now_ms: int) -> Change:
    """Keep it to be wanted back. Its day costs two bytes, so that what could be parked can always be kept."""
    last_day = (now_ms + KEPT_MS) // DAY_MS + 1
    return kept_key(cancelled), last_day.to_bytes(KEPT_DAY_BYTES, "big") + encode(cancelled)


def health_change(subscription_id: str, health: Health) -> Change:
    """What is remembered of an endpoint from now on."""
    return b"s/" + subscription_id.encode(), _encode(health)


def turn_change(subscription_id: str, resource: str, turn: Turn) -> Change:
    """Whose turn it is from now on."""
    return _turn_key(subscription_id, resource), _encode(turn)


def parked_key(delivery: Delivery) -> bytes:
    """Where a delivery is parked."""
    return f"p/{delivery.subscription_id}\0{delivery.resource or ''}\0".encode() + _place(delivery)


def waiting_key(delivery: Delivery) -> bytes:
    """Where the copy of a waiting delivery is."""
    return f"w/{delivery.subscription_id}\0{delivery.event_id} {delivery.source}".encode()


def kept_key(delivery: Delivery) -> bytes:
    """Where a cancelled delivery is kept."""
    return f"c/{delivery.subscription_id}\0".encode() + _place(delivery)


def _place(delivery: Delivery) -> bytes:
    return int(delivery.origin["offset"]).to_bytes(PLACE_BYTES, "big")


def expires_ms(key: bytes, value: bytes) -> int | None:
    """When an entry may be forgotten: a delivery that is over, one kept, and a resource that nothing waits for, each after its time."""
    if key[:2] == b"d/":
        entry = _entry(value)
        return entry.expires_ms if entry.standing == "over" else None
    if key[:2] == b"c/":
        return int.from_bytes(value[:KEPT_DAY_BYTES], "big") * DAY_MS
    if key[:2] == b"o/":
        turn = _turn(value)
        return turn.expires_ms if turn.head is None else None
    return None


def _turn_key(subscription_id: str, resource: str) -> bytes:
    return f"o/{subscription_id}\0{resource}".encode()
