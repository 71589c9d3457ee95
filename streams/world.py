"""The real world: this machine's clock and chance, where a simulation has made-up ones."""

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any


class SystemWorld:
    """What perform may use."""

    channels: Mapping[str, Any]
    """The payment channels, in a worker that calls them."""
    reader: Any
    """What reads the log by offset, in a worker that replays."""

    def __init__(self) -> None:
        self.random = random.Random()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)
