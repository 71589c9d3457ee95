"""Where a waiting record goes next, and for how long."""

import pytest

from streams.ladder.rules import next_hop, wait_ms
from topology.ladder import RUNGS

S, M, H = 1_000, 60_000, 3_600_000
NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("remaining_ms", "rung"),
    [
        (-H, None),
        (0, None),
        (1, "retry-5s"),
        (4 * S, "retry-5s"),
        (5 * S, "retry-5s"),
        (15 * S - 1, "retry-5s"),
        (15 * S, "retry-15s"),
        (59 * S, "retry-30s"),
        (1 * M, "retry-1m"),
        (7 * M, "retry-5m"),
        (24 * H, "retry-24h"),
        (72 * H - 1, "retry-24h"),
        (72 * H, "retry-72h"),
        (1_000 * H, "retry-72h"),
    ],
)
def test_a_record_goes_to_the_longest_rung_that_does_not_overshoot(remaining_ms: int, rung: str | None) -> None:
    hop = next_hop(NOW + remaining_ms, NOW)

    assert (hop.topic.name if hop else None) == rung


@pytest.mark.parametrize("remaining_ms", [1, 4_999, 7 * S, 61 * S, 110 * H, 1_000 * H])
def test_any_due_time_is_reached_never_early_and_in_few_hops(remaining_ms: int) -> None:
    due_ms, now_ms, hops = NOW + remaining_ms, NOW, 0
    while (rung := next_hop(due_ms, now_ms)) is not None:
        now_ms += wait_ms(rung, now_ms, due_ms, now_ms)
        hops += 1

    assert now_ms == due_ms
    assert hops <= remaining_ms // (72 * H) + 2 * len(RUNGS)


@pytest.mark.parametrize(
    ("appended_ms", "due_ms", "now_ms", "expected_ms"),
    [
        (NOW, NOW + H, NOW, 5 * S),
        (NOW, NOW + 2 * S, NOW, 2 * S),
        (NOW - 3 * S, NOW + H, NOW, 2 * S),
        (NOW - 9 * S, NOW + H, NOW, 0),
        (NOW, NOW - 1, NOW, 0),
        (NOW, NOW + H, NOW - 2 * H, 5 * S),
        (NOW + 2 * H, NOW + 9 * H, NOW, 5 * S),
    ],
    ids=[
        "whole delay",
        "due sooner",
        "part has passed",
        "all has passed",
        "overdue",
        "our clock stepped back",
        "the broker's clock is ahead",
    ],
)
def test_no_clock_can_hold_a_record_longer_than_its_rung(appended_ms: int, due_ms: int, now_ms: int, expected_ms: int) -> None:
    assert wait_ms(RUNGS[0], appended_ms, due_ms, now_ms) == expected_ms
