"""Who may post now: a subscription's lane in front of its endpoint."""

import asyncio
from collections import deque
from typing import Protocol

from streams.delivery.pace import Go, Later, Pace, PaceLimits, SlotState, Soon
from streams.delivery.results import Result

BUSY_MS = 1_000
"""How soon a delivery comes back that found the worker's gate full."""


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
