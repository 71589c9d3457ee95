"""Who may post now: a subscription's lane in front of its endpoint, and one beside it for replays."""

import asyncio
from collections import deque
from typing import Protocol

from streams.delivery.pace import SOON_MS, Go, Later, Pace, PaceLimits, Slots, SlotState, Soon
from streams.delivery.results import Result

BUSY_MS = 1_000
"""How soon a delivery comes back that found the worker's gate full."""
REPLAY_PART = 4
"""Replays have one of so many places of their subscription's lane."""
ASK_AGAIN_MS = 5_000
"""How soon a replay asks again that gave way: a shortest rung later."""


class Clock(Protocol):
    """What a lane needs of the world."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""


class Lane:
    """One subscription's deliveries in one worker: each goes, waits a moment, or is sent away with a slot."""

    __slots__ = ("_clock", "_timer", "_waiting", "pace")

    def __init__(self, limits: PaceLimits, slots: SlotState | None, clock: Clock) -> None:
        self.pace = Pace(limits, slots)
        self._clock = clock
        self._waiting: deque[tuple[int, asyncio.Future[Later | None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, slot_ms: int | None) -> Later | None:
        """Wait for a turn: None is one, and `leave` must follow; otherwise the slot to come back with."""
        decision = self.pace.decide(self._clock.now_ms(), len(self._waiting), slot_ms)
        if isinstance(decision, Go):
            self.pace.begin()
            return None
        if isinstance(decision, Later):
            return decision
        turn: asyncio.Future[Later | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((decision.slot_ms, turn))
        self._wake_at(decision.slot_ms)
        return await turn

    def leave(self, result: Result | None) -> None:
        """An attempt ended; None: it was never made."""
        if result is None:
            self.pace.abandon()
        else:
            self.pace.end(result, self._clock.now_ms())
        self._wake()

    def put_off(self, least_ms: int) -> Later:
        """A turn that could not be used: another slot."""
        return Later(max(least_ms, self.pace.take_slot(self._clock.now_ms())), "THROTTLED")

    @property
    def is_waited_for(self) -> bool:
        """Whether anything waits in memory for its turn."""
        return bool(self._waiting)

    def _wake(self) -> None:
        self._timer = None
        while self._waiting:
            slot_ms, turn = self._waiting[0]
            if turn.done():  # its task was cancelled: the partition went elsewhere
                self._waiting.popleft()
                continue
            decision = self.pace.decide(self._clock.now_ms(), len(self._waiting) - 1, slot_ms)
            if isinstance(decision, Soon):
                self._wake_at(decision.slot_ms)
                return
            self._waiting.popleft()
            if isinstance(decision, Go):
                self.pace.begin()
                turn.set_result(None)
            else:
                turn.set_result(decision)

    def _wake_at(self, slot_ms: int) -> None:
        """A full lane is woken by whoever leaves it; one that waits for its slot, by the time."""
        now_ms = self._clock.now_ms()
        if slot_ms > now_ms and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later((slot_ms - now_ms) / 1_000 + 0.001, self._wake)


class SideLane:
    """The lane of a subscription's replays: a part of its places and of the same slots, and it gives way to what is new."""

    __slots__ = ("_again", "_clock", "_in_lane", "_lane")

    def __init__(self, lane: Lane, limits: PaceLimits, clock: Clock) -> None:
        self._lane, self._clock = lane, clock
        self._in_lane = 0
        self._again = Slots(limits.rate_per_s, 1)  # those that gave way come back one after another, and not all at once

    @property
    def pace(self) -> Pace:
        """The endpoint's, which both lanes learn from."""
        return self._lane.pace

    async def enter(self, slot_ms: int | None) -> Later | None:
        """Wait for a turn as in the lane, where nothing new is kept from it by that."""
        now_ms = self._clock.now_ms()
        if slot_ms is None and not self._may_enter(now_ms):
            return self._later(now_ms)
        self._in_lane += 1
        later = await self._lane.enter(slot_ms)
        self._in_lane -= later is not None
        return later

    def _may_enter(self, now_ms: int) -> bool:
        has_place = self._in_lane < max(1, self.pace.limit // REPLAY_PART)
        may_go = self.pace.open_until_ms <= now_ms and self.pace.next_slot_ms(now_ms) < now_ms + SOON_MS
        return has_place and may_go and not self._lane.is_waited_for

    def _later(self, now_ms: int) -> Later:
        least_ms = max(now_ms + ASK_AGAIN_MS, self.pace.open_until_ms)
        return Later(self._again.take(now_ms, self.pace.effective_rate_per_s, least_ms), "THROTTLED", granted=False)

    def leave(self, result: Result | None) -> None:
        """An attempt ended; None: it was never made."""
        self._in_lane -= 1
        self._lane.leave(result)

    def put_off(self, least_ms: int) -> Later:
        """A turn that could not be used: a time to ask again."""
        return self._later(max(least_ms, self._clock.now_ms()))
