"""What follows an attempt, in tables."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.delivery.results import Answer, Failure, Result
from streams.delivery.rules import (
    DELIVERED,
    NO_STREAK,
    RETRY_AFTER_MS_MAX,
    DeadLetter,
    DisableRule,
    Gone,
    Policy,
    RetryAt,
    Streak,
    describe,
    is_success,
    is_tls_error,
    judge,
    retry_after_ms,
    why_disable,
)
from streams.delivery.schedule import Schedule

S, M, H = 1_000, 60_000, 3_600_000
NOW = 1_700_000_000_000
SIMPAISA = Schedule((1 * M, 5 * M, 30 * M, 2 * H, 12 * H, 24 * H, 72 * H))
POLICY = Policy(SIMPAISA, dead_letter_ambiguous=False)
CAUTIOUS = Policy(SIMPAISA, dead_letter_ambiguous=True)

REFUSED = Failure("connect", "connection refused", 3)
LOST = Failure("answer", "timeout", 15_000, timed_out=True, ambiguous=True)
BAD_CERTIFICATE = Failure("tls", "certificate has expired", 80)


def answer(code: int, retry_after: str | None = None) -> Answer:
    return Answer(code, 120, {} if retry_after is None else {"retry-after": retry_after})


@pytest.mark.parametrize("code", [200, 201, 202, 204, 226, 299])
@pytest.mark.parametrize("attempt", [1, 8])
def test_any_2xx_is_delivered(code: int, attempt: int) -> None:
    assert judge(attempt, answer(code), CAUTIOUS, NOW, 0.5) == DELIVERED


@pytest.mark.parametrize(
    "result", [answer(301), answer(302), answer(400), answer(401), answer(404), answer(422), answer(500), REFUSED, LOST]
)
def test_anything_else_is_tried_again_on_schedule(result: Result) -> None:
    assert judge(1, result, POLICY, NOW, 0.0) == RetryAt(NOW + M, describe(result))
    assert judge(7, result, POLICY, NOW, 0.0) == RetryAt(NOW + 72 * H, describe(result))


@pytest.mark.parametrize("result", [answer(302), answer(404), answer(429, "60"), answer(503), REFUSED, LOST, BAD_CERTIFICATE])
@pytest.mark.parametrize("attempt", [8, 9])
def test_after_the_last_attempt_it_is_dead_lettered(result: Result, attempt: int) -> None:
    verdict = judge(attempt, result, POLICY, NOW, 0.0)

    assert verdict == DeadLetter("EXHAUSTED", f"attempt {attempt} was the last: {describe(result)}")


@pytest.mark.parametrize("attempt", [1, 8])
def test_410_is_gone_at_any_attempt(attempt: int) -> None:
    assert judge(attempt, answer(410), POLICY, NOW, 0.0) == Gone("HTTP 410")


@pytest.mark.parametrize("attempt", [1, 4, 8])
def test_a_lost_answer_is_dead_lettered_at_any_attempt_where_the_subscription_asks_so(attempt: int) -> None:
    verdict = judge(attempt, LOST, CAUTIOUS, NOW, 0.0)

    assert isinstance(verdict, DeadLetter)
    assert verdict.reason == "AMBIGUOUS"
    assert verdict.detail == "no answer within 15 s, after the whole request was sent: the merchant may have it"


def test_a_failure_before_the_request_was_sent_is_not_ambiguous_and_is_tried_again() -> None:
    assert isinstance(judge(1, REFUSED, CAUTIOUS, NOW, 0.0), RetryAt)


@pytest.mark.parametrize(
    ("code", "attempt", "retry_after", "delay_ms"),
    [
        (429, 1, "120", 2 * M),
        (503, 1, "120", 2 * M),
        (503, 1, "5", M),
        (503, 1, "soon", M),
        (503, 1, None, M),
        (429, 1, "999999999", 24 * H),
        (429, 7, "999999999", 72 * H),
        (500, 1, "120", M),
        (301, 1, "120", M),
    ],
)
def test_429_and_503_wait_for_the_later_of_the_schedule_and_retry_after(
    code: int, attempt: int, retry_after: str | None, delay_ms: int
) -> None:
    assert judge(attempt, answer(code, retry_after), POLICY, NOW, 0.0) == RetryAt(NOW + delay_ms, f"HTTP {code}" + redirect(code))


def redirect(code: int) -> str:
    return ", a redirect, which is not followed" if code == 301 else ""


def test_the_whole_run_of_simpaisa_is_8_attempts_over_110_h_36_min() -> None:
    now_ms, attempt = NOW, 1
    while isinstance(verdict := judge(attempt, answer(500), POLICY, now_ms, 0.9), RetryAt):
        now_ms, attempt = verdict.due_ms, attempt + 1

    assert attempt == 8
    assert now_ms - NOW == 110 * H + 36 * M
    assert verdict == DeadLetter("EXHAUSTED", "attempt 8 was the last: HTTP 500")


def test_chance_reaches_the_schedule() -> None:
    policy = Policy(Schedule((10 * S,), "full"))

    assert judge(1, REFUSED, policy, NOW, 0.25) == RetryAt(NOW + 2_500, "connection refused")


AT = "2023-11-14T22:15:20"  # Two minutes after NOW, which is 22:13:20.


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        ("120", 120 * S),
        (" 120 ", 120 * S),
        ("0", 0),
        ("007", 7 * S),
        ("120.5", 120_500),
        ("0.0001", 1),
        ("1.", 1 * S),
        ("86400", 24 * H),
        ("86401", 24 * H),
        ("9" * 5_000, 24 * H),
        ("-1", None),
        ("+5", None),
        ("1e3", None),
        ("0x10", None),
        ("١٢٠", None),
        ("", None),
        ("soon", None),
        ("120, 60", None),
        ("nan", None),
        ("inf", None),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120 * S),
        ("Tuesday, 14-Nov-23 22:15:20 GMT", 120 * S),
        ("Tue Nov 14 22:15:20 2023", 120 * S),
        ("Tue, 14 Nov 2023 23:15:20 +0100", 120 * S),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Sun Nov  6 08:49:37 1994", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 24 * H),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Tue, 14 Nov 2023 22:15:20 +9999", None),
        ("Tue, 99 Nov 2023 22:15:20 GMT", None),
        ("2023-11-14T22:15:20Z", None),
        ("Tue, 14 Nov 2023 22:15:20 GMT" + " " * 50 + "x", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date_and_garbage_is_ignored(value: str, expected_ms: int | None) -> None:
    assert datetime.fromisoformat(AT).replace(tzinfo=UTC).timestamp() * 1_000 == NOW + 120 * S
    assert retry_after_ms(value, NOW) == expected_ms


words = st.sampled_from(["Tue", ",", "14", "Nov", "2023", "-", "22:15:20", "GMT", "+0100", " ", ":", ".", "99999999999", "Z", "EST"])


@given(st.text() | st.lists(words, max_size=9).map(" ".join) | st.lists(words, max_size=9).map("".join), st.integers(0, 4_000_000_000_000))
def test_no_retry_after_breaks_the_reader(value: str, now_ms: int) -> None:
    asked_ms = retry_after_ms(value, now_ms)

    assert asked_ms is None or 0 <= asked_ms <= RETRY_AFTER_MS_MAX


@given(st.integers(100, 599), st.integers(1, 12), st.text(max_size=20), st.floats(0, 1, exclude_max=True))
def test_a_retry_is_never_sooner_than_the_schedule_says(code: int, attempt: int, retry_after: str, chance: float) -> None:
    verdict = judge(attempt, answer(code, retry_after), POLICY, NOW, chance)

    if isinstance(verdict, RetryAt):
        assert verdict.due_ms - NOW >= SIMPAISA.delay_ms(attempt, chance)
    assert (verdict == DELIVERED) == (200 <= code < 300)


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (answer(503), "HTTP 503"),
        (answer(302), "HTTP 302, a redirect, which is not followed"),
        (LOST, "no answer within 15 s"),
        (Failure("answer", "", 15_012, timed_out=True), "no answer within 15 s"),
        (Failure("connect", "", 1_500, timed_out=True), "no connection within 1.5 s"),
        (Failure("tls", "", 250, timed_out=True), "no TLS handshake within 250 ms"),
        (Failure("send", "", 5_000, timed_out=True), "the request was not taken within 5 s"),
        (Failure("address", "", 5_000, timed_out=True), "the host's name was not resolved within 5 s"),
        (REFUSED, "connection refused"),
        (Failure("connect", "", 1), "no connection"),
        (BAD_CERTIFICATE, "TLS failed: certificate has expired"),
        (Failure("answer", "connection\n reset\tby peer", 9), "no answer: connection reset by peer"),
        (Failure("address", "10.0.0.1 is a private address", 0), "10.0.0.1 is a private address"),
        (Failure("connect", "x" * 999, 0), "x" * 300),
    ],
)
def test_an_attempt_is_described_in_one_line(result: Result, line: str) -> None:
    assert describe(result) == line


@pytest.mark.parametrize(
    ("result", "success", "tls_error"),
    [
        (answer(200), True, False),
        (answer(300), False, False),
        (answer(199), False, False),
        (BAD_CERTIFICATE, False, True),
        (Failure("tls", "", 5_000, timed_out=True), False, False),
        (REFUSED, False, False),
    ],
)
def test_results_are_told_apart_for_the_streak(result: Result, success: bool, tls_error: bool) -> None:
    assert (is_success(result), is_tls_error(result)) == (success, tls_error)


def failing(times: int, every_ms: int, tls: bool = False, streak: Streak = NO_STREAK) -> tuple[Streak, int]:
    for n in range(times):
        streak = streak.after(False, tls, NOW + n * every_ms)
    return streak, NOW + (times - 1) * every_ms


@pytest.mark.parametrize(
    ("times", "every_ms", "tls", "why"),
    [
        (100, 10 * M, False, None),
        (101, 10 * M, False, "failures"),
        (101, 36 * S, False, "failures"),
        (101, 35 * S, False, None),
        (1_000, 1 * S, False, None),
        (19, 24 * H, True, None),
        (20, 24 * H, True, "tls"),
        (20, 1 * H, True, None),
        (25, 1 * H, True, "tls"),
        (20, 24 * H, False, None),
        (101, 24 * H, True, "failures"),
    ],
)
def test_a_subscription_is_disabled_by_enough_failures_over_enough_time(times: int, every_ms: int, tls: bool, why: str | None) -> None:
    streak, now_ms = failing(times, every_ms, tls)

    assert why_disable(streak, now_ms, DisableRule()) == why


def test_wf_has_no_least_time() -> None:
    streak, now_ms = failing(101, 0)

    assert why_disable(streak, now_ms, DisableRule(least_ms=0)) == "failures"


def test_any_2xx_ends_both_runs() -> None:
    streak, now_ms = failing(100, H, tls=True)

    assert streak.after(True, False, now_ms) == NO_STREAK


def test_a_failure_that_is_not_tls_ends_the_tls_run_only() -> None:
    streak, now_ms = failing(19, 24 * H, tls=True)
    streak = streak.after(False, False, now_ms)

    assert streak == Streak(failures=20, since_ms=NOW)
    assert streak.after(False, True, now_ms + H) == Streak(21, NOW, 1, now_ms + H)


@pytest.mark.parametrize("change", [{"failures_max": 0}, {"tls_failures_max": 0}, {"least_ms": -1}, {"tls_least_ms": -1}])
def test_a_rule_that_disables_what_never_failed_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="never failed"):
        msgspec.structs.replace(DisableRule(), **change)


def test_a_rule_is_scaled_with_all_other_times_and_a_profile_may_do_without_the_least_one() -> None:
    rule = DisableRule(50, 3_600_000, 10, 7_200_000)

    assert rule.scaled(3_600, at_once=False) == DisableRule(50, 1_000, 10, 2_000)
    assert rule.scaled(1, at_once=True) == DisableRule(50, 0, 10, 7_200_000)
