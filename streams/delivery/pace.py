"""The pace of one subscription's endpoint: when its next delivery may go, and how many may be under way at once.

Every delivery takes one slot of the rate limit and keeps it: it goes in its slot, waits for it in memory when it is near, or rides
the ladder with it. Slots follow the limit (GCRA: `rate_per_s`, with a `burst` after a quiet time), or, for an endpoint that takes
less than that, what it has been seen to take. When such an endpoint recovers, what was put off keeps its slots, and new deliveries
get theirs beside them, so that they do not wait behind all of it; both together keep to the limit.

The lane is as wide as the endpoint has shown that it can bear: it widens with each quick answer and halves with each timeout.
Endpoints that do not answer at all open the breaker; then one probe at a time finds out whether they are back.

A `Pace` lives in one worker's memory and reads no clock. Only its slots are worth keeping over a restart.
"""

import math
from typing import Literal

import msgspec

from streams.delivery.results import Answer, Failure, Result

QUICK_MS = 1_000
"""An answer below this is quick, and an endpoint whose mean is above it is slow."""
SOON_MS = 1_000
"""A slot nearer than this is waited for in memory."""
INITIAL_IN_FLIGHT = 2
BREAKER_FAILURES = 10
BREAKER_MS_FIRST = 5_000
BREAKER_MS_MAX = 60_000
ASKS_FOR_LESS = frozenset({429, 503})
SHARE_LEAST = 0.25
"""How much of the limit new slots keep beside those granted at an earlier, slower pace."""
WEIGHT_SLOWER = 0.2
WEIGHT_QUICKER = 0.5
"""How much one service time moves the mean: an endpoint is believed sooner to have recovered than to have become slow."""


class PaceLimits(msgspec.Struct, frozen=True):
    """What a subscription allows its deliveries, and a worker its memory."""

    rate_per_s: float = 10.0
    burst: int = 20
    in_flight_max: int = 10
    waiting_max: int = 20

    def __post_init__(self) -> None:
        if not (self.rate_per_s > 0 and math.isfinite(self.rate_per_s)) or self.burst < 1:
            raise ValueError(f"{self} would never let a delivery go: give a rate above 0 and a burst of at least 1")
        if self.in_flight_max < 1 or self.waiting_max < 0:
            raise ValueError(f"{self} leaves no room: give at least 1 in flight and no negative number waiting")


class SlotState(msgspec.Struct, frozen=True):
    """What has been granted already, to be kept over a restart."""

    tat_ms: float = 0
    """The theoretical arrival time of GCRA: the next slot lies one burst before it."""
    tail_from_ms: float = 0
    tail_per_s: float = 0
    """Since when, and how densely at most, the latest slots lie."""
    beside_until_ms: float = 0
    beside_per_s: float = 0
    """Slots granted at a slower pace: until when they last, and how many there are."""


class Slots:
    """Grants each slot once, and never more than the limit allows."""

    __slots__ = ("_burst_ms", "_rate_per_s", "_state")

    def __init__(self, rate_per_s: float, burst: int, state: SlotState | None = None) -> None:
        self._state = state or SlotState()
        self.limit(rate_per_s, burst)

    def limit(self, rate_per_s: float, burst: int) -> None:
        """Keep to these limits from now on; what was granted stays."""
        self._rate_per_s = rate_per_s
        self._burst_ms = (burst - 1) * 1_000 / rate_per_s

    @property
    def state(self) -> SlotState:
        """What has been granted."""
        return self._state

    def next_ms(self, now_ms: int, pace_per_s: float) -> int:
        """Tell the slot that the next delivery would get at this pace, without taking it."""
        return math.ceil(max(now_ms, self._before(now_ms, pace_per_s).tat_ms - self._burst_ms))

    def take(self, now_ms: int, pace_per_s: float, least_ms: int = 0) -> int:
        """Take the next slot at this pace, not before `least_ms`."""
        pace_per_s = min(pace_per_s, self._rate_per_s)
        before = self._before(now_ms, pace_per_s)
        free_ms = before.tat_ms - self._burst_ms
        slot_ms = math.ceil(max(now_ms, least_ms, free_ms))
        tat_ms = least_ms + self._burst_ms if least_ms > max(now_ms, free_ms) else max(now_ms, before.tat_ms)
        beside_per_s = before.beside_per_s if slot_ms < before.beside_until_ms else 0.0
        room_per_s = max(pace_per_s - beside_per_s, pace_per_s * SHARE_LEAST)
        self._state = msgspec.structs.replace(before, tat_ms=tat_ms + 1_000 / room_per_s)
        return slot_ms

    def _before(self, now_ms: int, pace_per_s: float) -> SlotState:
        """What has been granted, seen from a pace: where it has halved or doubled, another stretch of slots begins."""
        state = self._state
        free_ms = state.tat_ms - self._burst_ms
        if free_ms <= now_ms:
            return msgspec.structs.replace(state, tail_from_ms=now_ms, tail_per_s=pace_per_s)
        if pace_per_s * 2 <= state.tail_per_s:
            return msgspec.structs.replace(state, tail_from_ms=free_ms, tail_per_s=pace_per_s)
        if pace_per_s < state.tail_per_s * 2:
            return msgspec.structs.replace(state, tail_per_s=max(state.tail_per_s, pace_per_s))
        beside_per_s = state.tail_per_s + (state.beside_per_s if state.beside_until_ms > now_ms else 0)
        if beside_per_s > self._rate_per_s * (1 - SHARE_LEAST):
            return state
        from_ms = max(now_ms, state.tail_from_ms) + 1_000 / self._rate_per_s
        return SlotState(from_ms + self._burst_ms, from_ms, pace_per_s, max(state.beside_until_ms, free_ms), beside_per_s)


class Go(msgspec.Struct, frozen=True):
    """Begin now."""


class Soon(msgspec.Struct, frozen=True):
    """Wait in memory, and ask again with this slot when it has come and whenever an attempt ended."""

    slot_ms: int


class Later(msgspec.Struct, frozen=True):
    """Ride the ladder with this slot, and ask again with it on return; one that was not granted only says when."""

    slot_ms: int
    why: Literal["THROTTLED", "BREAKER"]
    granted: bool = True


Decision = Go | Soon | Later

GO = Go()


class Pace:
    """What one endpoint may be given, by its limits and by what it has been seen to take."""

    __slots__ = (
        "_limits",
        "_open_ms",
        "_probing",
        "_service_ms",
        "_slots",
        "failures_without_answer",
        "hanging",
        "in_flight",
        "limit",
        "open_until_ms",
        "proven",
    )

    def __init__(self, limits: PaceLimits, slots: SlotState | None = None) -> None:
        self._limits = limits
        self._slots = Slots(limits.rate_per_s, limits.burst, slots)
        self.in_flight = 0
        self.limit = min(INITIAL_IN_FLIGHT, limits.in_flight_max)
        self.proven = False
        self.hanging = 0  # how many of those in flight have been so for longer than a quick answer takes: the gate counts them
        self._service_ms = 0.0
        self.failures_without_answer = 0
        self.open_until_ms = 0
        self._open_ms = 0
        self._probing = False

    def change_limits(self, limits: PaceLimits) -> None:
        """Keep to a changed subscription's limits from now on; what was granted or is under way stays."""
        self._limits = limits
        self._slots.limit(limits.rate_per_s, limits.burst)
        self.limit = min(self.limit, limits.in_flight_max)

    @property
    def slots(self) -> SlotState:
        """The slots granted so far, to be kept over a restart."""
        return self._slots.state

    @property
    def is_open(self) -> bool:
        """Tell whether the breaker is open: nothing goes but a probe when its time has come."""
        return self.open_until_ms > 0

    @property
    def is_slow(self) -> bool:
        """Tell whether it hangs now, or has been slow; not so of one that nothing is known of."""
        return self.hanging > 0 or self._service_ms > QUICK_MS

    @property
    def observed_per_s(self) -> float:
        """What the endpoint has been seen to take: as many as its lane holds in each mean service time; infinite if never seen."""
        return self.limit * 1_000 / self._service_ms if self._service_ms else math.inf

    @property
    def effective_rate_per_s(self) -> float:
        """The rate at which slots are granted: the limit, or what a slow endpoint takes if that is less."""
        if self._service_ms <= QUICK_MS:
            return self._limits.rate_per_s
        return min(self._limits.rate_per_s, self.observed_per_s)

    def next_slot_ms(self, now_ms: int) -> int:
        """Tell when the next delivery might go, without taking its slot."""
        return self._slots.next_ms(now_ms, self.effective_rate_per_s)

    def take_slot(self, now_ms: int) -> int:
        """Take the next slot: now, or a time to come."""
        return self._slots.take(now_ms, self.effective_rate_per_s)

    def _take_put_off(self, now_ms: int, least_ms: int) -> int:
        """Take a slot that an endpoint which is behind can be expected to keep."""
        return self._slots.take(now_ms, min(self._limits.rate_per_s, self.observed_per_s), least_ms)

    def may_begin(self, now_ms: int) -> bool:
        """Tell whether the lane has room; of an open breaker, whether its probe may go, alone."""
        if self.open_until_ms:
            return now_ms >= self.open_until_ms and self.in_flight == 0
        return self.in_flight < self.limit

    def decide(self, now_ms: int, waiting: int, slot_ms: int | None = None) -> Decision:
        """Decide what a delivery does that wants to go.

        `waiting` is how many others wait in memory; `slot_ms` is the slot that it was granted, if it comes back. After each `end`,
        ask again for those that wait, the oldest first, until one is not to go. `Go` counts only with `begin`: call it before the
        next decision.
        """
        if now_ms < self.open_until_ms:
            return Later(self._take_put_off(now_ms, self.open_until_ms), "BREAKER")
        has_room = self.may_begin(now_ms)
        memory_is_full = waiting >= self._limits.waiting_max
        if not has_room and memory_is_full and (slot_ms is not None or self.next_slot_ms(now_ms) < now_ms + SOON_MS):
            # Its own slot would bring it back to a full lane, so it gets one that the endpoint can be expected to keep.
            return Later(self._take_put_off(now_ms, now_ms + SOON_MS), "THROTTLED")
        if slot_ms is None:
            slot_ms = self.take_slot(now_ms)
        if slot_ms <= now_ms:
            return GO if has_room else Soon(slot_ms)
        return Later(slot_ms, "THROTTLED") if memory_is_full or slot_ms >= now_ms + SOON_MS else Soon(slot_ms)

    def begin(self) -> None:
        """Count a delivery as under way; `end` or `abandon` must follow."""
        self.in_flight += 1
        # Beside a probe nothing else is under way, so that the next one to end is the probe.
        self._probing = self.open_until_ms > 0

    def abandon(self) -> None:
        """Count a delivery as no longer under way that came to no result for a reason of our own."""
        self.in_flight -= 1
        self._probing = False

    def end(self, result: Result, now_ms: int) -> None:
        """Learn from what an attempt came to."""
        was_probe = self._probing
        self.abandon()
        if isinstance(result, Answer):
            self._learn_from_answer(result)
        else:
            self._learn_from_failure(result)
            self._trip(was_probe, now_ms)

    def _learn_from_answer(self, answer: Answer) -> None:
        self.failures_without_answer = 0
        self.open_until_ms = 0
        self.proven = answer.duration_ms < QUICK_MS
        self._learn_service_time(answer.duration_ms)
        if self.proven and self.limit < self._limits.in_flight_max and answer.code not in ASKS_FOR_LESS:
            self.limit += 1

    def _learn_from_failure(self, failure: Failure) -> None:
        self.failures_without_answer += 1
        self.proven = False
        # A refused connection is quick, and says nothing of how quick the endpoint is when it works.
        if failure.timed_out:
            self.limit = max(1, self.limit // 2)
            self._learn_service_time(failure.duration_ms)

    def _learn_service_time(self, duration_ms: int) -> None:
        taken_ms = max(1, duration_ms)
        if not self._service_ms:
            self._service_ms = taken_ms
        else:
            weight = WEIGHT_QUICKER if taken_ms < self._service_ms else WEIGHT_SLOWER
            self._service_ms += weight * (taken_ms - self._service_ms)

    def _trip(self, was_probe: bool, now_ms: int) -> None:
        """Open the breaker after too many failures, and for twice as long after each failed probe; stragglers change nothing."""
        if was_probe:
            self._open_ms = min(2 * self._open_ms, BREAKER_MS_MAX)
        elif not self.is_open and self.failures_without_answer >= BREAKER_FAILURES:
            self._open_ms = BREAKER_MS_FIRST
            self.limit = min(self.limit, INITIAL_IN_FLIGHT)
        else:
            return
        self.open_until_ms = now_ms + self._open_ms
