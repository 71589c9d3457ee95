"""When a failed attempt is tried again: the delays of a profile, and the chance in them."""

from typing import Literal

import msgspec

from streams.errors import ConfigurationError

Jitter = Literal["none", "added", "around", "full"]
"""What chance does to a delay: nothing, makes it longer, moves it both ways, or takes any time up to it."""

DELAY_MS_MAX = 7 * 24 * 3_600_000
DELAYS_MAX = 50


class Schedule(msgspec.Struct, frozen=True):
    """The delay after each failed attempt; after the last delay's attempt there is no other."""

    delays_ms: tuple[int, ...]
    jitter: Jitter = "none"
    jitter_fraction: float = 0.0

    def __post_init__(self) -> None:
        if len(self.delays_ms) > DELAYS_MAX:
            raise ConfigurationError(f"a schedule has {len(self.delays_ms)} delays: give at most {DELAYS_MAX}")
        for delay_ms in self.delays_ms:
            if not 0 <= delay_ms <= DELAY_MS_MAX:
                raise ConfigurationError(f"a schedule's delay is {delay_ms} ms: give 0 to {DELAY_MS_MAX} (7 days)")
        if not 0 <= self.jitter_fraction <= 1:
            raise ConfigurationError(f"a schedule's jitter is {self.jitter_fraction} of its delays: give 0 to 1")

    @property
    def attempts_max(self) -> int:
        """How many attempts there are in all: the first, and one after each delay."""
        return len(self.delays_ms) + 1

    def delay_ms(self, failed: int, chance: float) -> int:
        """Tell how long to wait after the `failed`-th failed attempt, counted from 1; chance is from 0 up to, not including, 1."""
        if not 1 <= failed < self.attempts_max:
            raise ValueError(f"no attempt follows failed attempt {failed} of {self.attempts_max}: ask attempts_max first")
        delay_ms = self.delays_ms[failed - 1]
        match self.jitter:
            case "none":
                return delay_ms
            case "added":
                return int(delay_ms * (1 + self.jitter_fraction * chance))
            case "around":
                return int(delay_ms * (1 + self.jitter_fraction * (2 * chance - 1)))
            case "full":
                return int(delay_ms * chance)

    def scaled(self, scale: float) -> "Schedule":
        """Divide every delay by `scale`, so that a demonstration or a test need not wait days."""
        if not scale > 0:
            raise ConfigurationError(f"a schedule cannot be divided by {scale}: give a scale above 0")
        return msgspec.structs.replace(self, delays_ms=tuple(int(delay_ms / scale) for delay_ms in self.delays_ms))


def doubling(first_ms: int, most_ms: int, count: int) -> tuple[int, ...]:
    """Give `count` delays that double from the first one and stay at the most."""
    return tuple(min(first_ms * 2**n, most_ms) for n in range(count))
