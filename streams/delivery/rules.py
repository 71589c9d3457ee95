"""What follows an attempt: delivered, tried again, dead-lettered or gone, and when a subscription is disabled. Pure."""

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Literal, Protocol

import msgspec

from streams.delivery.results import Answer, Failure, Result, Stage

HOUR_MS = 3_600_000
RETRY_AFTER_MS_MAX = 24 * HOUR_MS
RETRY_AFTER_CHARS_MAX = 64
ASKS_TO_WAIT = frozenset({429, 503})
"""The answers whose `Retry-After` is heeded."""
GONE = 410
ERROR_CHARS_MAX = 300
SECONDS = re.compile(r"\d+(\.\d*)?", re.ASCII)

DeadLetterReason = Literal[
    "MALFORMED", "TOO_LARGE", "EXHAUSTED", "AMBIGUOUS", "GONE", "SERIALISATION_FAILED", "SIGNING_FAILED", "REFUSED", "FAILED"
]


class Schedule(Protocol):
    """How often a delivery is attempted, and how long it waits in between."""

    @property
    def attempts_max(self) -> int:
        """How many attempts there are in all."""

    def delay_ms(self, failed: int, chance: float) -> int:
        """Tell how long to wait after the `failed`-th failed attempt, counted from 1."""


class Policy(msgspec.Struct, frozen=True):
    """What a subscription wants done about attempts that fail."""

    schedule: Schedule
    dead_letter_ambiguous: bool = False


class Delivered(msgspec.Struct, frozen=True):
    """The merchant has it."""


class RetryAt(msgspec.Struct, frozen=True):
    """It failed, and is tried again when due."""

    due_ms: int
    reason: str


class DeadLetter(msgspec.Struct, frozen=True):
    """It is not tried again unless a person asks."""

    reason: DeadLetterReason
    detail: str


class Gone(msgspec.Struct, frozen=True):
    """The endpoint says it is no more: the subscription is disabled and its deliveries are cancelled."""

    detail: str


Verdict = Delivered | RetryAt | DeadLetter | Gone

DELIVERED = Delivered()


def judge(attempt: int, result: Result, policy: Policy, now_ms: int, chance: float) -> Verdict:
    """Decide what follows attempt number `attempt`, counted from 1; chance is from 0 up to, not including, 1."""
    if is_success(result):
        return DELIVERED
    if isinstance(result, Answer) and result.code == GONE:
        return Gone(describe(result))
    if isinstance(result, Failure) and result.ambiguous and policy.dead_letter_ambiguous:
        return DeadLetter("AMBIGUOUS", f"{describe(result)}, after the whole request was sent: the merchant may have it")
    if attempt >= policy.schedule.attempts_max:
        return DeadLetter("EXHAUSTED", f"attempt {attempt} was the last: {describe(result)}")
    delay_ms = max(policy.schedule.delay_ms(attempt, chance), asked_to_wait_ms(result, now_ms))
    return RetryAt(now_ms + delay_ms, describe(result))


def is_success(result: Result) -> bool:
    """Tell whether the merchant took it: any 2xx."""
    return isinstance(result, Answer) and 200 <= result.code < 300


def is_tls_error(result: Result) -> bool:
    """Tell whether TLS could not be agreed on; a handshake that only took too long is a slow endpoint, not a bad certificate."""
    return isinstance(result, Failure) and result.stage == "tls" and not result.timed_out


def asked_to_wait_ms(result: Result, now_ms: int) -> int:
    """Tell how long a 429 or 503 asks us to stay away; 0 where nothing, or nothing readable, is asked."""
    if not isinstance(result, Answer) or result.code not in ASKS_TO_WAIT:
        return 0
    return retry_after_ms(result.headers.get("retry-after", ""), now_ms) or 0


def retry_after_ms(value: str, now_ms: int) -> int | None:
    """Read a `Retry-After` in seconds or as an HTTP date: 0 for a past date, 24 h at most, None for what is neither.

    A fraction of a second is against the RFC but seen in the wild; it is rounded up, for we are never early.
    """
    value = value.strip()
    if SECONDS.fullmatch(value):
        return math.ceil(min(float(value) * 1_000, RETRY_AFTER_MS_MAX))
    if len(value) > RETRY_AFTER_CHARS_MAX:
        return None
    try:
        # An HTTP date is in GMT even where its format has no place to say so.
        moment = parsedate_to_datetime(value)
        at_ms = math.ceil((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(0, at_ms - now_ms), RETRY_AFTER_MS_MAX)


TOO_SLOW: dict[Stage, str] = {
    "address": "the host's name was not resolved",
    "connect": "no connection",
    "tls": "no TLS handshake",
    "send": "the request was not taken",
    "answer": "no answer",
}
FAILED: dict[Stage, str] = {
    "address": "no usable address",
    "connect": "no connection",
    "tls": "TLS failed",
    "send": "the request was not sent",
    "answer": "no answer",
}
SPEAKS_FOR_ITSELF: frozenset[Stage] = frozenset({"address", "connect"})
"""The stages whose errors need no introduction: connection refused."""


def describe(result: Result) -> str:
    """Say in one line what an attempt came to."""
    if isinstance(result, Answer):
        return f"HTTP {result.code}" + (", a redirect, which is not followed" if 300 <= result.code < 400 else "")
    if result.timed_out:
        return f"{TOO_SLOW[result.stage]} within {spell_duration(result.duration_ms)}"
    error = " ".join(result.error.split())[:ERROR_CHARS_MAX]
    if not error:
        return FAILED[result.stage]
    return error if result.stage in SPEAKS_FOR_ITSELF else f"{FAILED[result.stage]}: {error}"


def spell_duration(duration_ms: int) -> str:
    """Spell a duration for people: 15 s, 1.5 s, 250 ms."""
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    return f"{duration_ms / 1_000:.1f}".removesuffix(".0") + " s"


class Streak(msgspec.Struct, frozen=True):
    """How many attempts failed in a row, and how many of the latest of them by TLS errors; each since its first failure."""

    failures: int = 0
    since_ms: int = 0
    tls_failures: int = 0
    tls_since_ms: int = 0

    def after(self, result_ok: bool, was_tls_error: bool, now_ms: int) -> "Streak":
        """Count one more attempt: success ends both runs, and a failure that is not TLS ends the TLS run."""
        if result_ok:
            return NO_STREAK
        return Streak(
            failures=self.failures + 1,
            since_ms=self.since_ms if self.failures else now_ms,
            tls_failures=self.tls_failures + 1 if was_tls_error else 0,
            tls_since_ms=(self.tls_since_ms if self.tls_failures else now_ms) if was_tls_error else 0,
        )


NO_STREAK = Streak()


class DisableRule(msgspec.Struct, frozen=True):
    """When a subscription is disabled: after more than `failures_max` in a row, or `tls_failures_max` TLS errors, over a least time."""

    failures_max: int = 100
    least_ms: int = HOUR_MS
    tls_failures_max: int = 20
    tls_least_ms: int = 24 * HOUR_MS

    def __post_init__(self) -> None:
        if self.failures_max < 1 or self.tls_failures_max < 1 or self.least_ms < 0 or self.tls_least_ms < 0:
            raise ValueError(f"{self} would disable a subscription that never failed: give counts of at least 1 and times of at least 0")

    def scaled(self, scale: float, *, at_once: bool) -> "DisableRule":
        """Divide its times as the delays of deliveries are divided; without the least time where failures disable at once."""
        least_ms = 0 if at_once else int(self.least_ms / scale)
        return msgspec.structs.replace(self, least_ms=least_ms, tls_least_ms=int(self.tls_least_ms / scale))


def why_disable(streak: Streak, now_ms: int, rule: DisableRule) -> Literal["failures", "tls"] | None:
    """Tell why a streak disables its subscription, as its state's reason; None: it does not."""
    if streak.failures > rule.failures_max and now_ms - streak.since_ms >= rule.least_ms:
        return "failures"
    if streak.tls_failures >= rule.tls_failures_max and now_ms - streak.tls_since_ms >= rule.tls_least_ms:
        return "tls"
    return None
