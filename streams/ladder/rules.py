"""Where a record that is not yet due waits next, and for how long: pure."""

from bisect import bisect_right

from streams.errors import ConfigurationError
from topology.ladder import RUNGS
from topology.topics import Topic

HOLD_MS_LEAST = 100
"""However much the ladder is scaled, a rung keeps what is not due for so long: less than a hop costs would be spinning."""


class Ladder:
    """The rungs with their delays, each divided by `scale`. Who sends to the ladder and who lets go must use the same."""

    def __init__(self, scale: float = 1.0) -> None:
        """Refuse a scale below 1: a rung's topic keeps its records for the whole delay and some days, and no longer."""
        if not scale >= 1:
            raise ConfigurationError(f"a time scale of {scale} would hold records longer than their topics keep them: give 1 or more")
        self._delays_ms = [int(rung.delay_ms / scale) for rung in RUNGS]
        self._holds_ms = {rung.topic: max(delay_ms, HOLD_MS_LEAST) for rung, delay_ms in zip(RUNGS, self._delays_ms, strict=True)}

    def next_hop(self, due_ms: int, now_ms: int) -> Topic | None:
        """The longest rung that does not overshoot; the shortest for what is left below it; none when it is due."""
        remaining_ms = due_ms - now_ms
        if remaining_ms <= 0:
            return None
        return RUNGS[max(0, bisect_right(self._delays_ms, remaining_ms) - 1)].topic

    def wait_ms(self, rung: Topic, since_ms: int, due_ms: int, now_ms: int) -> int:
        """How long a rung still holds what is there since `since_ms`: for its delay from then, or until it is due if that is sooner.

        Never longer than the delay, whatever the clocks say: a clock that stepped back must not block the records behind.
        """
        hold_ms = self._holds_ms[rung]
        lets_go_ms = min(since_ms + hold_ms, due_ms)
        return min(max(0, lets_go_ms - now_ms), hold_ms)


UNSCALED = Ladder()
