"""The gate of a whole worker: how many posts may be under way at once, and how endpoints that hang are kept from filling it.

A post is fresh for its first second. Only fresh posts take the gate's room, for whatever hangs would keep it from all others; so
however many endpoints hang, the room is free again within a second. What hangs then costs a socket each, and is bounded in its own
way: an endpoint that is known to be slow, or that hangs now, may begin another post only while few hang, and one that nothing is known
of waits its turn among its like while not very many do. An endpoint that answers quickly is not asked to wait for any of them.
"""

import asyncio

from streams.delivery.pace import QUICK_MS, Pace

HANGING_OF_ROOM_MAX = 4
"""So many times the room may hang before endpoints that nothing is known of are turned away too: sockets are not without end."""


class Pass:
    """One post's leave to be under way."""

    __slots__ = ("begun_s", "hangs", "pace", "unproven")

    def __init__(self, pace: Pace, unproven: bool) -> None:
        self.pace, self.unproven = pace, unproven
        self.begun_s = 0.0
        self.hangs = False


class Gate:
    """Bounds the posts of a whole worker. Fresh posts to endpoints that have not shown to be quick share half of its room."""

    def __init__(self, in_flight_max: int) -> None:
        unproven_max = max(1, in_flight_max // 2)
        self._slow_hanging_max, self._hanging_max = unproven_max, in_flight_max * HANGING_OF_ROOM_MAX
        self._room = asyncio.Semaphore(in_flight_max)
        self._unproven_room = asyncio.Semaphore(unproven_max)
        self._fresh: dict[Pass, None] = {}  # the oldest first
        self._hanging = 0
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, pace: Pace) -> Pass | None:
        """Wait for room; a slow endpoint is turned away instead. `leave` must follow what is not None."""
        if pace.proven:
            await self._room.acquire()
            return self._entered(Pass(pace, unproven=False))
        if not self._takes_unproven(pace):
            return None
        await self._unproven_room.acquire()
        try:
            if self._takes_unproven(pace, waited=True):
                await self._room.acquire()
                return self._entered(Pass(pace, unproven=True))
        except asyncio.CancelledError:
            self._unproven_room.release()
            raise
        self._unproven_room.release()
        return None

    def _takes_unproven(self, pace: Pace, waited: bool = False) -> bool:
        """Whether it may wait, or go; what it waited for may have shown that its endpoint hangs."""
        if pace.is_slow:
            return self._hanging < self._slow_hanging_max and (waited or not self._unproven_room.locked()) and not self._room.locked()
        return self._hanging < self._hanging_max

    def _entered(self, entered: Pass) -> Pass:
        loop = asyncio.get_running_loop()
        entered.begun_s = loop.time()
        self._fresh[entered] = None
        if self._timer is None:
            self._timer = loop.call_later(QUICK_MS / 1_000, self._age)
        return entered

    def leave(self, entered: Pass) -> None:
        """Make room."""
        if entered.hangs:
            self._hanging -= 1
            entered.pace.hanging -= 1
        else:
            del self._fresh[entered]
            self._free(entered)

    def _free(self, entered: Pass) -> None:
        if entered.unproven:
            self._unproven_room.release()
        self._room.release()

    def _age(self) -> None:
        """What is no longer fresh hangs; whoever it is posted to has not shown to be quick."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for entered in list(self._fresh):
            hangs_from_s = entered.begun_s + QUICK_MS / 1_000  # the same sum for both: a difference may never come to it
            if hangs_from_s > now_s:
                self._timer = loop.call_at(hangs_from_s, self._age)
                return
            del self._fresh[entered]
            self._free(entered)
            entered.hangs, entered.pace.proven = True, False
            entered.pace.hanging += 1
            self._hanging += 1
