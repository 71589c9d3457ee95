"""Where a record that is not yet due waits next, and until when: pure."""

from bisect import bisect_right

from topology.ladder import RUNGS, Rung

DELAYS_MS = [rung.delay_ms for rung in RUNGS]
RUNG_OF = {rung.topic: rung for rung in RUNGS}


def next_hop(due_ms: int, now_ms: int) -> Rung | None:
    """The longest rung that does not overshoot; the shortest for what is left below it; none when it is due."""
    remaining_ms = due_ms - now_ms
    if remaining_ms <= 0:
        return None
    return RUNGS[max(0, bisect_right(DELAYS_MS, remaining_ms) - 1)]


def wait_ms(rung: Rung, appended_ms: int, due_ms: int, now_ms: int) -> int:
    """How long a rung still holds a record: until its append time plus the delay, or until it is due if that is sooner.

    Never longer than the delay, whatever the clocks say: a clock that stepped back must not block the records behind.
    """
    lets_go_ms = min(appended_ms + rung.delay_ms, due_ms)
    return min(max(0, lets_go_ms - now_ms), rung.delay_ms)
