"""When a worker holds all its deliveries because the fault is its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.delivery.brake import Brake, BrakeRule, connected
from streams.delivery.results import Answer, Failure, Result

NOW = 1_700_000_000_000
S = 1_000


def braked(failed: int, fine: int) -> Brake:
    brake = Brake()
    for n in range(fine):
        brake.note(f"fine-{n}", True, NOW)
    for n in range(failed):
        brake.note(f"failed-{n}", False, NOW)
    return brake


@pytest.mark.parametrize(
    ("failed", "fine", "on"),
    [(0, 0, False), (19, 0, False), (20, 0, True), (10, 10, True), (10, 9, False), (9, 11, False), (9, 100, False), (50, 50, True)],
)
def test_it_comes_on_when_half_of_at_least_20_merchants_cannot_be_reached(failed: int, fine: int, on: bool) -> None:
    assert braked(failed, fine).is_on(NOW) == on


def test_one_merchant_that_fails_often_counts_once() -> None:
    brake = Brake()
    for n in range(1_000):
        brake.note("one", False, NOW + n)

    assert not brake.is_on(NOW + 1_000)
    assert (brake.tried, brake.failed) == (1, 1)


def test_a_merchants_latest_result_counts() -> None:
    brake = braked(failed=20, fine=0)
    for n in range(11):
        brake.note(f"failed-{n}", True, NOW + S)

    assert not brake.is_on(NOW + S)


def test_results_older_than_a_minute_do_not_count() -> None:
    brake = braked(failed=19, fine=0)
    brake.note("late", False, NOW + 60 * S)

    assert not brake.is_on(NOW + 60 * S)
    assert brake.tried == 1


def test_it_stays_on_while_its_few_probes_fail_and_clears_when_they_connect() -> None:
    brake = braked(failed=20, fine=0)
    for second in range(0, 300, 30):
        brake.note("failed-1", False, NOW + second * S)
        assert brake.is_on(NOW + second * S)
    brake.note("failed-1", True, NOW + 300 * S)

    assert not brake.is_on(NOW + 300 * S)


def test_it_clears_when_nothing_was_tried_for_a_minute() -> None:
    brake = braked(failed=30, fine=0)

    assert brake.is_on(NOW + 59_999)
    assert not brake.is_on(NOW + 60_000)


def test_each_change_is_told_once() -> None:
    brake = Brake()
    assert brake.change(NOW) is None
    for n in range(25):
        brake.note(f"m{n}", False, NOW)

    assert [brake.change(NOW), brake.change(NOW)] == ["ON", None]
    assert [brake.change(NOW + 60 * S), brake.change(NOW + 61 * S)] == ["OFF", None]


def test_nothing_is_held_while_it_is_off() -> None:
    brake = braked(failed=5, fine=30)

    assert [brake.hold("failed-1", NOW) for _ in range(5)] == [None] * 5


def test_one_delivery_of_each_merchant_goes_every_5_seconds_and_the_others_are_held_one_behind_the_other() -> None:
    brake = braked(failed=20, fine=0)

    assert [brake.hold("a", NOW) for _ in range(3)] == [None, NOW + 5 * S, NOW + 10 * S]
    assert brake.hold("b", NOW) is None
    assert brake.hold("a", NOW + 4_999) == NOW + 15 * S
    assert brake.hold("a", NOW + 5_000) is None
    assert brake.hold("a", NOW + 5_001) == NOW + 20 * S


def test_nothing_is_held_for_longer_than_the_longest_hold() -> None:
    brake = braked(failed=20, fine=0)
    due = [brake.hold("a", NOW) for _ in range(1_000)]

    assert max(each for each in due if each) == NOW + 120 * S


def test_a_clock_that_steps_back_lets_probes_through() -> None:
    brake = braked(failed=20, fine=0)

    assert brake.hold("a", NOW + 30 * S) is None
    assert brake.hold("a", NOW) is None


def test_memory_is_bounded() -> None:
    brake = Brake(BrakeRule(merchants_max=50))
    for n in range(1_000):
        brake.note(f"m{n}", False, NOW + n)
        brake.hold(f"m{n}", NOW + n)

    assert brake.tried == brake.failed == 50
    assert len(brake._held) <= 50


@pytest.mark.parametrize(
    ("result", "reached"),
    [
        (Answer(500, 10), True),
        (Failure("connect", "", 1), False),
        (Failure("connect", "", 5_000, timed_out=True), False),
        (Failure("address", "", 1), False),
        (Failure("tls", "", 1), True),
        (Failure("send", "", 1), True),
        (Failure("answer", "", 9_000, timed_out=True, ambiguous=True), True),
    ],
)
def test_only_what_never_reached_the_merchants_machine_counts_as_not_connected(result: Result, reached: bool) -> None:
    assert connected(result) == reached


@pytest.mark.parametrize(
    "change", [{"merchants_least": 0}, {"fraction": 0}, {"fraction": 1.1}, {"probe_every_ms": 0}, {"probe_every_ms": 99_999}]
)
def test_a_rule_that_cannot_work_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="BrakeRule"):
        BrakeRule(**change)  # type: ignore[arg-type]


notes = st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.integers(0, 20_000)), max_size=80)


@given(notes)
def test_its_counts_are_those_of_each_merchants_latest_result_in_the_window(steps: list[tuple[int, bool, int]]) -> None:
    brake, rule, now_ms = Brake(BrakeRule(merchants_least=4)), BrakeRule(merchants_least=4), NOW
    latest: dict[int, tuple[int, bool]] = {}
    on = False
    for merchant, reached, advance_ms in steps:
        now_ms += advance_ms
        brake.note(str(merchant), reached, now_ms)
        latest[merchant] = (now_ms, reached)
        counted = [each for at_ms, each in latest.values() if at_ms > now_ms - rule.window_ms]
        on = len(counted) >= (1 if on else 4) and counted.count(False) >= len(counted) / 2

        assert (brake.tried, brake.failed) == (len(counted), counted.count(False))
        assert brake.is_on(now_ms) == on
