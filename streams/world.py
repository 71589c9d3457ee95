"""The real world: this machine's clock and chance, where a simulation has made-up ones."""

import asyncio
import random
import time


class SystemWorld:
    """What perform may use."""

    def __init__(self) -> None:
        self.random = random.Random()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)
