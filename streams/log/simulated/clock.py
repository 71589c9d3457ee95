"""An event loop whose time is made up: it never waits, and two runs of the same program are the same."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

Result = TypeVar("Result")

STEPS_MAX = 2_000_000
"""Turns of the loop after which a program is taken to hang: its time does not move."""


class _NoFiles(selectors.BaseSelector):
    """Watches no files: when nothing is ready, time jumps to the next timer instead."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.steps = 0
        self._self_pipe: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._self_pipe[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._self_pipe.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.steps += 1
        if timeout is None:
            raise RuntimeError("the simulation stands still: nothing is ready and no timer is set")
        if self.steps > STEPS_MAX:
            raise RuntimeError(f"the simulation took {STEPS_MAX} steps and has come to {self.now_s:.3f} s")
        self.now_s += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._self_pipe


class SimulatedLoop(asyncio.SelectorEventLoop):
    """asyncio on made-up time."""

    def __init__(self) -> None:
        self._clock = _NoFiles()
        super().__init__(self._clock)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._clock.now_s


def simulate(program: Coroutine[Any, Any, Result]) -> Result:
    """Run a program to its end on made-up time."""
    loop = SimulatedLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(program)
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()
