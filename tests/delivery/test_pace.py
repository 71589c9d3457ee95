"""How fast and how wide one endpoint is served."""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.delivery.pace import GO, Go, Later, Pace, PaceLimits, Slots, SlotState, Soon
from streams.delivery.results import Answer, Failure, Result

NOW = 1_700_000_000_000
S = 1_000
LIMITS = PaceLimits(rate_per_s=10, burst=20, in_flight_max=10, waiting_max=20)

QUICK = Answer(200, 50)
SLOW = Answer(200, 4_000)
ERROR = Answer(500, 50)
HUNG = Failure("answer", "", 10_000, timed_out=True, ambiguous=True)
REFUSED = Failure("connect", "connection refused", 2)


def after(*results: Result, limits: PaceLimits = LIMITS, now_ms: int = NOW) -> Pace:
    """Make a pace that has seen these results, one after the other."""
    pace = Pace(limits)
    for result in results:
        pace.begin()
        pace.end(result, now_ms)
    return pace


# Slots


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    pace = Pace(PaceLimits(rate_per_s=10, burst=3))

    assert [pace.take_slot(NOW) - NOW for _ in range(6)] == [0, 0, 0, 100, 200, 300]


def test_looking_at_the_next_slot_does_not_take_it() -> None:
    pace = Pace(PaceLimits(rate_per_s=10, burst=1))
    pace.take_slot(NOW)

    assert [pace.next_slot_ms(NOW), pace.next_slot_ms(NOW), pace.take_slot(NOW), pace.take_slot(NOW)] == [
        NOW + 100,
        NOW + 100,
        NOW + 100,
        NOW + 200,
    ]


def test_a_quiet_time_gives_the_burst_back_and_no_more() -> None:
    pace = Pace(PaceLimits(rate_per_s=10, burst=3))
    for _ in range(10):
        pace.take_slot(NOW)
    later = NOW + 3_600 * S

    assert [pace.take_slot(later) - later for _ in range(4)] == [0, 0, 0, 100]


@pytest.mark.parametrize("rate_per_s", [0.01, 0.3, 3, 7, 1_000, 3_000])
def test_any_rate_is_kept_over_a_long_run(rate_per_s: float) -> None:
    pace = Pace(PaceLimits(rate_per_s=rate_per_s, burst=1))
    slots = [pace.take_slot(NOW) for _ in range(5_001)]

    assert slots[-1] - NOW == pytest.approx(5_000 * 1_000 / rate_per_s, abs=2)


def test_granted_slots_survive_a_restart() -> None:
    before = Pace(LIMITS)
    granted = [before.take_slot(NOW) for _ in range(50)]
    restored = Pace(LIMITS, before.slots)

    assert restored.slots == before.slots
    assert restored.take_slot(NOW) == granted[-1] + 100
    assert after(*[HUNG] * 4).slots == SlotState()


steps = st.lists(st.tuples(st.integers(0, 3_000), st.floats(0.01, 1.5), st.booleans()), min_size=1, max_size=60)
rates = st.floats(0.2, 500)
bursts = st.integers(1, 30)


def assert_within(slots: list[int], rate_per_s: float, burst: int) -> None:
    """Check every window between two slots; each slot is told in whole milliseconds, so that a window may look 1 ms too short."""
    ordered = sorted(slots)
    for i, first_ms in enumerate(ordered):
        for j in range(i, len(ordered)):
            assert j - i + 1 <= rate_per_s * (ordered[j] - first_ms + 1) / 1_000 + burst + 1e-3


@given(rates, bursts, steps)
def test_over_any_window_the_slots_are_at_most_the_rate_and_one_burst_and_in_order(
    rate_per_s: float, burst: int, steps: list[tuple[int, float, bool]]
) -> None:
    slots, now_ms, granted = Slots(rate_per_s, burst), NOW, []
    for advance_ms, _, _ in steps:
        now_ms += advance_ms
        seen_ms = slots.next_ms(now_ms, rate_per_s)
        granted.append(slots.take(now_ms, rate_per_s))
        assert granted[-1] == seen_ms >= now_ms

    assert granted == sorted(granted)
    assert_within(granted, rate_per_s, burst)


@given(rates, bursts, steps)
@settings(max_examples=300)
def test_whatever_pace_the_endpoint_takes_old_and_new_slots_together_keep_to_the_limit(
    rate_per_s: float, burst: int, steps: list[tuple[int, float, bool]]
) -> None:
    slots, now_ms, granted = Slots(rate_per_s, burst), NOW, []
    for advance_ms, fraction, is_put_off in steps:
        now_ms += advance_ms
        pace_per_s = min(rate_per_s, rate_per_s * fraction)
        granted.append(slots.take(now_ms, pace_per_s, now_ms + S if is_put_off else 0))
        assert granted[-1] >= now_ms

    # One more than the burst: a slot granted at a slower pace may lie right beside a burst.
    assert_within(granted, rate_per_s, burst + 1)


# The lane


def test_an_endpoint_that_never_answered_gets_two_at_once() -> None:
    pace = Pace(LIMITS)

    assert (pace.limit, pace.proven) == (2, False)
    assert Pace(PaceLimits(in_flight_max=1)).limit == 1


@pytest.mark.parametrize(
    ("results", "limit", "proven"),
    [
        ([QUICK], 3, True),
        ([ERROR], 3, True),
        ([QUICK] * 30, 10, True),
        ([SLOW] * 5, 2, False),
        ([Answer(429, 50)] * 5, 2, True),
        ([QUICK] * 30 + [HUNG], 5, False),
        ([QUICK] * 30 + [HUNG] * 9, 1, False),
        ([QUICK] * 30 + [REFUSED], 10, False),
        ([QUICK] * 30 + [HUNG, QUICK], 6, True),
        ([REFUSED, QUICK], 3, True),
    ],
)
def test_a_lane_widens_with_quick_answers_and_halves_with_timeouts(results: list[Result], limit: int, proven: bool) -> None:
    pace = after(*results)

    assert (pace.limit, pace.proven) == (limit, proven)


def test_there_is_room_up_to_the_limit() -> None:
    pace = Pace(LIMITS)
    pace.begin()
    assert pace.may_begin(NOW)
    pace.begin()
    assert not pace.may_begin(NOW)
    pace.abandon()
    assert pace.may_begin(NOW)
    assert pace.limit == 2


# The effective rate


@pytest.mark.parametrize(
    ("results", "rate_per_s"),
    [
        ([], 10),
        ([QUICK] * 5, 10),
        ([REFUSED] * 5, 10),
        ([HUNG], 0.1),
        ([HUNG] * 5, 0.1),
        ([SLOW], 0.5),
        ([Answer(200, 60)] * 20 + [SLOW], 10),
    ],
)
def test_a_slow_endpoint_is_paced_by_what_it_takes(results: list[Result], rate_per_s: float) -> None:
    assert after(*results).effective_rate_per_s == pytest.approx(rate_per_s)


def test_an_endpoint_that_recovers_is_soon_at_its_limit_again_and_not_behind_what_was_put_off() -> None:
    pace = after(*[HUNG] * 5)
    put_off = [pace.take_slot(NOW) for _ in range(1_000)]
    for _ in range(6):
        pace.begin()
        pace.end(QUICK, NOW)

    assert put_off[-1] > NOW + 9_000 * S
    assert pace.effective_rate_per_s == 10
    assert [pace.take_slot(NOW) for _ in range(20)][-1] <= NOW + 2.1 * S


# The breaker


def test_ten_failures_without_an_answer_open_the_breaker_and_nine_do_not() -> None:
    assert not after(*[REFUSED] * 9).is_open
    pace = after(*[REFUSED] * 10)

    assert pace.open_until_ms == NOW + 5 * S
    assert not pace.may_begin(NOW + 5 * S - 1)
    assert pace.may_begin(NOW + 5 * S)


def test_an_error_status_is_an_answer_and_never_opens_the_breaker() -> None:
    pace = after(*[ERROR] * 100)
    assert not pace.is_open

    assert not after(*[REFUSED] * 9, ERROR, *[REFUSED] * 9).is_open


def test_each_failed_probe_doubles_the_time_up_to_a_minute_and_an_answer_closes() -> None:
    pace, now_ms, opened = after(*[REFUSED] * 10), NOW, []
    for _ in range(6):
        opened.append((pace.open_until_ms - now_ms) // S)
        now_ms = pace.open_until_ms
        pace.begin()
        assert not pace.may_begin(now_ms)
        pace.end(REFUSED, now_ms)
    now_ms = pace.open_until_ms
    pace.begin()
    pace.end(ERROR, now_ms)

    assert opened == [5, 10, 20, 40, 60, 60]
    assert not pace.is_open
    assert pace.may_begin(now_ms)


def test_what_was_under_way_when_the_breaker_opened_is_no_probe() -> None:
    pace = after(*[QUICK] * 10)
    for _ in range(10):
        pace.begin()
        pace.begin()
        pace.end(REFUSED, NOW)
    assert pace.open_until_ms == NOW + 5 * S

    for left in range(10, 0, -1):
        assert pace.in_flight == left
        assert not pace.may_begin(NOW + 6 * S)
        pace.end(HUNG, NOW + 6 * S)
    assert pace.open_until_ms == NOW + 5 * S
    assert pace.may_begin(NOW + 6 * S)


def test_a_probe_that_is_abandoned_leaves_its_place_to_another() -> None:
    pace = after(*[REFUSED] * 10)
    pace.begin()
    pace.abandon()

    assert pace.open_until_ms == NOW + 5 * S
    assert pace.may_begin(NOW + 5 * S)


# The decision


def test_a_delivery_with_a_free_slot_and_room_goes() -> None:
    assert Pace(LIMITS).decide(NOW, 0) == GO


def test_a_full_lane_is_waited_for_in_memory_and_then_later() -> None:
    pace = Pace(LIMITS)
    pace.begin()
    pace.begin()

    assert pace.decide(NOW, 0) == Soon(NOW)
    assert pace.decide(NOW, 19, NOW) == Soon(NOW)
    for waiting, slot_ms in ((20, None), (20, NOW)):
        later = pace.decide(NOW, waiting, slot_ms)
        assert isinstance(later, Later)
        assert later.slot_ms >= NOW + S
        assert later.why == "THROTTLED"


def test_a_near_slot_is_waited_for_in_memory_and_a_far_one_on_the_ladder() -> None:
    pace = Pace(PaceLimits(rate_per_s=2, burst=1))

    assert pace.decide(NOW, 0) == GO
    assert pace.decide(NOW, 0) == Soon(NOW + 500)
    assert pace.decide(NOW, 1) == Later(NOW + 1_000, "THROTTLED")


def test_a_near_slot_rides_the_ladder_all_the_same_when_memory_is_full() -> None:
    pace = Pace(PaceLimits(rate_per_s=2, burst=1, waiting_max=0))
    pace.decide(NOW, 0)

    assert pace.decide(NOW, 0) == Later(NOW + 500, "THROTTLED")


def test_a_granted_slot_is_honoured_on_return_and_no_other_is_taken() -> None:
    pace = Pace(PaceLimits(rate_per_s=1, burst=1))
    pace.decide(NOW, 0)
    later = pace.decide(NOW, 0)
    assert later == Later(NOW + S, "THROTTLED")
    before = pace.slots

    assert pace.decide(NOW + 400, 0, later.slot_ms) == Soon(NOW + S)
    assert pace.decide(NOW + S, 0, later.slot_ms) == GO
    assert pace.decide(NOW + 99 * S, 0, later.slot_ms) == GO
    assert pace.slots == before


def test_an_open_breaker_spreads_deliveries_behind_its_time() -> None:
    pace = after(*[REFUSED] * 10)
    decisions = [pace.decide(NOW, 0, slot_ms) for slot_ms in (None, NOW, None)]

    assert decisions == [Later(NOW + 5 * S + n * 100, "BREAKER") for n in range(3)]


def test_while_a_probe_is_under_way_others_wait_for_it_in_memory() -> None:
    pace = after(*[REFUSED] * 10)
    now_ms = pace.open_until_ms

    assert pace.decide(now_ms, 0, now_ms) == GO
    pace.begin()
    assert pace.decide(now_ms, 0, now_ms) == Soon(now_ms)
    pace.end(REFUSED, now_ms)
    assert isinstance(pace.decide(now_ms, 0, now_ms), Later)


@pytest.mark.parametrize(
    "change", [{"rate_per_s": 0}, {"rate_per_s": float("nan")}, {"rate_per_s": float("inf")}, {"burst": 0}, {"in_flight_max": 0}]
)
def test_limits_that_let_nothing_go_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="PaceLimits"):
        PaceLimits(**change)  # type: ignore[arg-type]


def test_changed_limits_hold_from_then_on() -> None:
    pace = after(*[QUICK] * 30)
    pace.change_limits(PaceLimits(rate_per_s=1, burst=1, in_flight_max=3))

    assert pace.limit == 3
    assert [pace.take_slot(NOW) - NOW for _ in range(3)] == [0, 1_000, 2_000]


# All of it together: a handler in small, on a clock of its own.


class Served:
    """Serves deliveries through a pace as the handler does, and checks at every step what must hold."""

    def __init__(self, limits: PaceLimits, endpoint: Callable[[int], Result]) -> None:
        self.limits, self.endpoint, self.pace = limits, endpoint, Pace(limits)
        self.waiting: deque[tuple[int, int]] = deque()
        self.events: list[tuple[int, int, str, int, int | None]] = []
        self.results: dict[int, Result] = {}
        self.order = 0
        self.begun: list[tuple[int, int]] = []
        self.rides: list[tuple[int, int, Later]] = []
        self.granted: list[int] = []

    def at(self, when_ms: int, what: str, delivery: int = -1, slot_ms: int | None = None) -> None:
        self.order += 1
        heapq.heappush(self.events, (when_ms, self.order, what, delivery, slot_ms))

    def run(self, until_ms: int) -> None:
        while self.events and self.events[0][0] <= until_ms:
            now_ms, _, what, delivery, slot_ms = heapq.heappop(self.events)
            if what == "end":
                self.pace.end(self.results.pop(delivery), now_ms)
                self.drain(now_ms)
            elif what == "wake":
                self.drain(now_ms)
            else:
                self.offer(delivery, now_ms, slot_ms)
            assert len(self.waiting) <= self.limits.waiting_max
            assert len(self.results) == self.pace.in_flight

    def drain(self, now_ms: int) -> None:
        for _ in range(len(self.waiting)):
            delivery, slot_ms = self.waiting.popleft()
            self.offer(delivery, now_ms, slot_ms)

    def offer(self, delivery: int, now_ms: int, slot_ms: int | None) -> None:
        match self.pace.decide(now_ms, len(self.waiting), slot_ms):
            case Go():
                assert self.pace.in_flight < self.pace.limit <= self.limits.in_flight_max
                assert slot_ms is None or slot_ms <= now_ms
                self.pace.begin()
                self.begun.append((now_ms, delivery))
                self.results[delivery] = self.endpoint(now_ms)
                self.at(now_ms + self.results[delivery].duration_ms, "end", delivery)
            case Soon(near_ms):
                assert near_ms < now_ms + S
                assert slot_ms is None or near_ms == slot_ms
                self.waiting.append((delivery, near_ms))
                if near_ms > now_ms:
                    self.at(near_ms, "wake")
            case Later(far_ms) as later:
                assert far_ms > now_ms
                self.rides.append((now_ms, delivery, later))
                if far_ms != slot_ms:
                    self.granted.append(far_ms)
                self.at(far_ms, "offer", delivery, far_ms)


endings = st.sampled_from([QUICK, QUICK, ERROR, SLOW, HUNG, REFUSED, Answer(429, 20)])
limits_of_all_kinds = st.builds(
    PaceLimits,
    rate_per_s=st.floats(0.5, 200),
    burst=st.integers(1, 30),
    in_flight_max=st.integers(1, 12),
    waiting_max=st.integers(0, 20),
)


@given(limits_of_all_kinds, st.lists(endings, max_size=40), st.lists(st.integers(0, 2_000), min_size=1, max_size=120))
@settings(max_examples=150, deadline=None)
def test_every_delivery_goes_exactly_once_within_its_lane_whatever_the_endpoint_does(
    limits: PaceLimits, script: list[Result], gaps: list[int]
) -> None:
    left = deque(script)
    served = Served(limits, lambda _: left.popleft() if left else QUICK)
    now_ms = NOW
    for delivery, gap_ms in enumerate(gaps):
        now_ms += gap_ms
        served.at(now_ms, "offer", delivery)
    served.run(NOW + 30 * 24 * 3_600 * S)

    assert Counter(delivery for _, delivery in served.begun) == Counter(range(len(gaps)))
    assert served.pace.in_flight == len(served.waiting) == len(served.events) == 0
    assert_within(served.granted, limits.rate_per_s, limits.burst + 1)


def test_a_hanging_endpoint_with_1000_deliveries_is_offered_them_at_its_own_pace_and_each_once() -> None:
    served = Served(LIMITS, lambda _: HUNG)
    for delivery in range(1_000):
        served.at(NOW, "offer", delivery)
    learned_ms = NOW + 150 * S
    served.run(NOW + 365 * 24 * 3_600 * S)

    slots = [later.slot_ms for at_ms, _, later in served.rides if at_ms > learned_ms]
    assert len(set(slots)) == len(slots)
    assert all(b - a >= 9_000 for a, b in pairwise(slots))
    assert Counter(delivery for _, delivery in served.begun) == Counter(range(1_000))


def test_an_endpoint_that_hung_for_two_minutes_takes_new_deliveries_at_once_when_it_is_back() -> None:
    served = Served(LIMITS, lambda now_ms: HUNG if now_ms < NOW + 120 * S else QUICK)
    for n in range(600):
        served.at(NOW + n * 200, "offer", n)
    fresh = range(1_000, 1_300)
    for n in fresh:
        served.at(NOW + 400 * S + (n - 1_000) * 250, "offer", n)
    served.run(NOW + 365 * 24 * 3_600 * S)

    begun_ms = {delivery: at_ms for at_ms, delivery in served.begun}
    assert len(begun_ms) == 900
    assert max(begun_ms[n] - (NOW + 400 * S + (n - 1_000) * 250) for n in fresh) <= S


def test_a_healthy_endpoint_drains_a_backlog_at_its_limit() -> None:
    served = Served(LIMITS, lambda _: QUICK)
    for delivery in range(1_000):
        served.at(NOW, "offer", delivery)
    served.run(NOW + 24 * 3_600 * S)

    assert len(served.begun) == 1_000
    assert (served.begun[-1][0] - NOW) / S == pytest.approx(98, abs=10)
