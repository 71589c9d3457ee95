"""Schedules: every profile's due times, what chance does to them, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.delivery.profiles import PROFILES
from streams.delivery.schedule import DELAY_MS_MAX, DELAYS_MAX, Jitter, Schedule, doubling
from streams.errors import ConfigurationError

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
LONG = [
    1 * MINUTE,
    6 * MINUTE,
    36 * MINUTE,
    2 * HOUR + 36 * MINUTE,
    14 * HOUR + 36 * MINUTE,
    38 * HOUR + 36 * MINUTE,
    110 * HOUR + 36 * MINUTE,
]
ALMOST_ONE = 1 - 2**-53


def due_ms(schedule: Schedule, chance: float) -> list[int]:
    """When each attempt after the first is due, if each fails at once."""
    delays = [schedule.delay_ms(failed, chance) for failed in range(1, schedule.attempts_max)]
    return [sum(delays[: n + 1]) for n in range(len(delays))]


@pytest.mark.parametrize(
    ("profile", "chance", "expected"),
    [
        ("simpaisa", 0.0, LONG),
        ("simpaisa", ALMOST_ONE, LONG),
        ("core", 0.7, [1 * MINUTE, 16 * MINUTE, 76 * MINUTE, 7 * HOUR + 16 * MINUTE]),
        ("jitter", 0.0, [0, 0, 0, 0]),
        ("jitter", 0.5, [500, 1_500, 3_500, 7_500]),
        ("jitter", ALMOST_ONE, [999, 2_998, 6_997, 14_996]),
        ("wf", 0.0, [27_000, 135_000, 675_000, 3_915_000, 23_355_000, 101_115_000]),
        ("wf", 0.5, [30_000, 150_000, 750_000, 4_350_000, 25_950_000, 112_350_000]),
        ("wf", 0.75, [31_500, 157_500, 787_500, 4_567_500, 27_247_500, 117_967_500]),
        ("standard", 0.0, LONG),
        ("standard", 0.5, [63_000, 378_000, 2_268_000, 9_828_000, 55_188_000, 145_908_000, 418_068_000]),
    ],
)
def test_each_profile_is_due_when_the_table_says(profile: str, chance: float, expected: list[int]) -> None:
    assert due_ms(PROFILES[profile].schedule, chance) == expected


def test_the_whole_of_simpaisa_takes_110_hours_and_36_minutes_over_8_attempts() -> None:
    schedule = PROFILES["simpaisa"].schedule

    assert sum(schedule.delays_ms) == 110 * HOUR + 36 * MINUTE
    assert schedule.attempts_max == 8


@pytest.mark.parametrize(("profile", "attempts"), [("simpaisa", 8), ("core", 5), ("jitter", 5), ("wf", 7), ("standard", 8)])
def test_there_is_one_attempt_more_than_there_are_delays(profile: str, attempts: int) -> None:
    assert PROFILES[profile].schedule.attempts_max == attempts


def test_full_jitter_doubles_its_caps_up_to_five_minutes() -> None:
    assert doubling(1 * SECOND, 5 * MINUTE, count=11) == (*(SECOND * 2**n for n in range(9)), 300_000, 300_000)


@given(st.integers(0, DELAY_MS_MAX), st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_chance_stays_within_its_bounds(delay_ms: int, fraction: float, chance: float) -> None:
    def delay(jitter: Jitter) -> int:
        return Schedule((delay_ms,), jitter, fraction).delay_ms(1, chance)

    assert delay("none") == delay_ms
    assert delay_ms <= delay("added") <= delay_ms * (1 + fraction)
    assert int(delay_ms * (1 - fraction)) - 1 <= delay("around") <= delay_ms * (1 + fraction)
    assert 0 <= delay("full") <= delay_ms


@pytest.mark.parametrize("failed", [-1, 0, 3])
def test_no_delay_is_told_where_no_attempt_follows(failed: int) -> None:
    with pytest.raises(ValueError, match=f"no attempt follows failed attempt {failed} of 3"):
        Schedule((1, 2)).delay_ms(failed, 0.0)


def test_a_schedule_without_delays_has_one_attempt() -> None:
    assert Schedule(()).attempts_max == 1


def test_scaling_divides_every_delay_and_keeps_the_jitter() -> None:
    scaled = PROFILES["wf"].schedule.scaled(1_000)

    assert scaled == Schedule((30, 120, 600, 3_600, 21_600, 86_400), "around", 0.1)


@pytest.mark.parametrize("scale", [0, -1, float("nan")])
def test_a_scale_that_is_not_above_zero_is_refused(scale: float) -> None:
    with pytest.raises(ConfigurationError, match="give a scale above 0"):
        Schedule((1,)).scaled(scale)


@pytest.mark.parametrize(
    ("delays_ms", "fraction", "reason"),
    [
        ((-1,), 0.0, "delay is -1 ms"),
        ((DELAY_MS_MAX + 1,), 0.0, "7 days"),
        ((1,) * (DELAYS_MAX + 1), 0.0, "has 51 delays"),
        ((1,), 1.1, "give 0 to 1"),
        ((1,), -0.1, "give 0 to 1"),
        ((1,), float("nan"), "give 0 to 1"),
    ],
)
def test_a_schedule_out_of_bounds_is_refused_with_its_reason(delays_ms: tuple[int, ...], fraction: float, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Schedule(delays_ms, "added", fraction)


def test_the_longest_schedule_is_allowed() -> None:
    assert Schedule((DELAY_MS_MAX,) * DELAYS_MAX).attempts_max == DELAYS_MAX + 1
