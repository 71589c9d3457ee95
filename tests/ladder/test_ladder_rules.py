"""Where a waiting record goes next, and for how long."""

import random

import pytest

from streams.delivery.profiles import PROFILES
from streams.errors import ConfigurationError
from streams.ladder.rules import HOLD_MS_LEAST, UNSCALED, Ladder
from topology.ladder import RUNGS
from topology.topics import Topic

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
    hop = UNSCALED.next_hop(NOW + remaining_ms, NOW)

    assert (hop.name if hop else None) == rung


def climb(ladder: Ladder, remaining_ms: int) -> list[tuple[Topic, int]]:
    """The rungs on the way to a due time, and how long each holds, when every clock is right and nothing takes time."""
    due_ms, now_ms = NOW + remaining_ms, NOW
    hops: list[tuple[Topic, int]] = []
    while (rung := ladder.next_hop(due_ms, now_ms)) is not None:
        wait_ms = ladder.wait_ms(rung, now_ms, due_ms, now_ms)
        hops.append((rung, wait_ms))
        now_ms += wait_ms
    return hops


@pytest.mark.parametrize("remaining_ms", [1, 4_999, 7 * S, 61 * S, 110 * H, 1_000 * H])
@pytest.mark.parametrize("scale", [1, 7.5, 60, 3_600])
def test_any_due_time_is_reached_never_early_and_in_few_hops(scale: float, remaining_ms: int) -> None:
    hops = climb(Ladder(scale), int(remaining_ms / scale))

    assert sum(wait_ms for _, wait_ms in hops) == int(remaining_ms / scale)
    assert len(hops) <= remaining_ms // (72 * H) + 2 * len(RUNGS)


@pytest.mark.parametrize("scale", [1, 7.5, 60, 3_600])
def test_a_scaled_ladder_has_the_same_rungs_and_divides_what_they_hold(scale: float) -> None:
    ladder = Ladder(scale)
    for rung in RUNGS:
        delay_ms = int(rung.delay_ms / scale)

        assert ladder.next_hop(NOW + delay_ms, NOW) is rung.topic
        assert ladder.wait_ms(rung.topic, NOW, NOW + 1_000 * H, NOW) == max(delay_ms, HOLD_MS_LEAST)


@pytest.mark.parametrize("scale", [1, 7.5, 60, 3_600])
@pytest.mark.parametrize("profile", ["simpaisa", "core"])
def test_a_schedule_and_the_ladder_of_one_scale_agree_on_the_first_rung(profile: str, scale: float) -> None:
    delays_ms = PROFILES[profile].schedule.delays_ms
    scaled = PROFILES[profile].schedule.scaled(scale).delays_ms

    assert [climb(Ladder(scale), delay_ms)[0][0] for delay_ms in scaled] == [climb(UNSCALED, delay_ms)[0][0] for delay_ms in delays_ms]


@pytest.mark.parametrize("scale", [1e6, 1e9, float("inf")])
def test_a_ladder_scaled_to_nothing_neither_refuses_nor_spins(scale: float) -> None:
    hops = climb(Ladder(scale), 30 * S)

    assert sum(wait_ms for _, wait_ms in hops) == 30 * S
    assert len(hops) <= 30 * S / HOLD_MS_LEAST


@pytest.mark.parametrize("scale", [0, -1, 0.99, float("nan")])
def test_a_scale_that_would_outlast_the_topics_is_refused(scale: float) -> None:
    with pytest.raises(ConfigurationError, match="longer than their topics"):
        Ladder(scale)


@pytest.mark.parametrize("seed", range(20))
def test_above_the_shortest_rung_nobody_waits_behind_others_for_longer_than_it_took_to_be_written(seed: int) -> None:
    chance = random.Random(seed)
    rung = chance.choice(RUNGS[1:]).topic
    asked_ms, written_ms = NOW, NOW
    sent: list[tuple[int, int, int]] = []
    while len(sent) < 500:
        asked_ms += chance.randrange(2 * S)
        due_ms = asked_ms + int(10 ** chance.uniform(3, 9))
        if UNSCALED.next_hop(due_ms, asked_ms) is rung:
            written_ms = max(written_ms, asked_ms + chance.randrange(S))
            sent.append((asked_ms, written_ms, due_ms))

    lets_go = [since_ms + UNSCALED.wait_ms(rung, since_ms, due_ms, since_ms) for _, since_ms, due_ms in sent]
    for number, (asked_ms, written_ms, _) in enumerate(sent):
        assert max(lets_go[: number + 1]) - lets_go[number] <= written_ms - asked_ms


@pytest.mark.parametrize(
    ("since_ms", "due_ms", "now_ms", "expected_ms"),
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
def test_no_clock_can_hold_a_record_longer_than_its_rung(since_ms: int, due_ms: int, now_ms: int, expected_ms: int) -> None:
    assert UNSCALED.wait_ms(RUNGS[0].topic, since_ms, due_ms, now_ms) == expected_ms
