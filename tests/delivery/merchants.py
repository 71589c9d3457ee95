"""Simulated merchants: endpoints that answer, fail, hang, flap and lie, and what reached each of them."""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count
from typing import NamedTuple

import orjson

from streams.delivery.gate import Gate
from streams.delivery.results import Answer, Failure, Result
from streams.log.simulated.cluster import brokers_now_ms
from streams.log.simulated.process import Host, Process

HOUR_S, RETRY_AFTER_S_MAX = 3_600, 86_400
FLAP_S = 600


@dataclass
class Post:
    """One request as the network saw it, in true time but for `at_ms`, which is the worker's."""

    number: int
    worker: str
    subscription: str
    url: str
    event: str
    body: bytes
    at_ms: int
    began_ms: int
    ended_ms: int | None = None
    result: Result | None = None  # None: its worker did not live to hear of it, or lost the shard meanwhile
    began_step: int = 0  # which of all beginnings and ends it was: many fall into one millisecond
    ended_step: int = 0
    not_before_ms: int = 0  # what a Retry-After means to whoever can read it

    @property
    def was_taken(self) -> bool:
        return isinstance(self.result, Answer) and 200 <= self.result.code < 300


class Told(NamedTuple):
    """What an endpoint does: how long it takes, what the client makes of it, and how long it asks to be left alone."""

    seconds: float
    result: Result
    wait_s: float = 0.0
    taken_silently: bool = False


def _answer(code: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Callable[[random.Random, float], Told]:
    def told(chance: random.Random, timeout_s: float) -> Told:
        seconds = chance.uniform(0.001, 0.2)
        return Told(seconds, Answer(code, int(seconds * 1_000), headers or {}, body))

    return told


def _failure(result: Failure, seconds: float = 0.001) -> Callable[[random.Random, float], Told]:
    return lambda chance, timeout_s: Told(seconds, result)


def _hang(chance: random.Random, timeout_s: float) -> Told:
    late = Failure("answer", "", int(timeout_s * 1_000), timed_out=True, ambiguous=True)
    return Told(timeout_s, late, taken_silently=chance.random() < 0.5)


def _slow(chance: random.Random, timeout_s: float) -> Told:
    return Told(3.0, Answer(200, 3_000))


def _flaky(chance: random.Random, timeout_s: float) -> Told:
    return _answer(chance.choice([200, 500, 200, 503]))(chance, timeout_s)


def _flap(chance: random.Random, timeout_s: float) -> Told:
    is_up = int(asyncio.get_running_loop().time() / FLAP_S) % 2 == 0
    return (_answer(200) if is_up else BEHAVIOURS["refuse"])(chance, timeout_s)


def _unreachable(chance: random.Random, timeout_s: float) -> Told:
    return Told(5.0, Failure("connect", "no connection within 5 s", 5_000, timed_out=True))


def _throttle(chance: random.Random, timeout_s: float) -> Told:
    """Asks for patience as the RFC says, or as nobody should; with what a careful reader makes of it."""
    now = datetime.fromtimestamp(brokers_now_ms() // 1_000, UTC)
    text, wait_s = chance.choice(
        [
            ("30", 30.0),
            ("7200", 7_200.0),
            ("0.5", 0.5),
            ("0", 0.0),
            ("99999999999", RETRY_AFTER_S_MAX),
            (format_datetime(now + timedelta(hours=1), usegmt=True), HOUR_S - 2.0),
            (format_datetime(now + timedelta(hours=1), usegmt=True).removesuffix(" GMT"), HOUR_S - 2.0),
            (format_datetime(now + timedelta(days=400), usegmt=True), RETRY_AFTER_S_MAX),
            ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
            ("-60", 0.0),
            ("soon", 0.0),
            ("", 0.0),
            ("1e9", 0.0),
            ("Thu, 99 Foo 20xx 99:99:99 GMT", 0.0),
            ("9" * 5_000, RETRY_AFTER_S_MAX),
        ]
    )
    told = _answer(chance.choice([429, 503]), {"retry-after": text})(chance, timeout_s)
    return told._replace(wait_s=wait_s)


def _lie(chance: random.Random, timeout_s: float) -> Told:
    """What no standard has."""
    return chance.choice(
        [
            _answer(299, {"retry-after": "5"}, b"\xff\x00 nonsense"),
            _answer(204, {"content-length": "-1"}, b"not empty"),
            _answer(200, {}, b'{"error": "everything failed"}'),
            _failure(Failure("answer", "the answer is not HTTP: SSH-2.0", 1, ambiguous=True)),
            _answer(500, {"retry-after": "86400"}),
            _answer(304),
            _answer(307, {"location": "http://169.254.169.254/"}),
            _answer(999),
        ]
    )(chance, timeout_s)


BEHAVIOURS: Mapping[str, Callable[[random.Random, float], Told]] = {
    "ok": _answer(200),
    "error": _answer(500),
    "missing": _answer(404),
    "redirect": _answer(301, {"location": "https://elsewhere.example/"}),
    "flaky": _flaky,
    "slow": _slow,
    "hang": _hang,
    "flap": _flap,
    "throttle": _throttle,
    "lie": _lie,
    "gone": _answer(410),
    "refuse": _failure(Failure("connect", "refused", 1)),
    "unreachable": _unreachable,
    "unresolved": _failure(Failure("address", "does not resolve", 1)),
    "drop while asked": _failure(Failure("send", "the connection broke during the request", 5), 0.005),
    "drop when asked": _failure(Failure("answer", "the connection broke before an answer came", 5, ambiguous=True), 0.005),
    "certificate": _failure(Failure("tls", "certificate verify failed: self-signed", 20), 0.02),
}
OFTEN = ("ok", "ok", "ok", "ok", "error", "flaky", "flap", "hang", "throttle", "lie")


class Merchants:
    """Every endpoint there is. A subscription's endpoint is known by the subscription, wherever it moves."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.behaviour: dict[str, str] = {}  # by subscription; who is not here is well
        self.posts: list[Post] = []
        self.shown: Counter[str] = Counter()
        self.steps = count(1)

    async def answer(self, post: Post, timeout_s: float) -> Result:
        """Take one request."""
        behaviour = self.behaviour.get(post.subscription, "ok")
        self.shown[behaviour] += 1
        told = BEHAVIOURS[behaviour](self.chance, timeout_s)
        self.posts.append(post)
        post.began_step = next(self.steps)
        await asyncio.sleep(told.seconds)
        post.not_before_ms = brokers_now_ms() + int(told.wait_s * 1_000)
        return told.result


def clock_of(host: Host) -> str:
    """Each role of a host has a machine to itself."""
    return f"{host.system.agent.name} {host.name}"


class World:
    """One process's world: what it begins ends with it, and its clock is its machine's, right or wrong."""

    def __init__(self, process: Process, name: str, merchants: Merchants, skews_ms: Mapping[str, int]) -> None:
        self._process, self._name, self._merchants, self._skews_ms = process, name, merchants, skews_ms
        self.client, self.gate = self, Gate(64)

    def now_ms(self) -> int:
        return brokers_now_ms() + self._skews_ms.get(clock_of(self._process.host), 0)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._process.gate.passed()

    async def post(self, url: str, headers: bytes, body: bytes, answer_timeout_s: float, connect_timeout_s: float | None = None) -> Result:
        at_ms = self.now_ms()
        await self._process.gate.passed()
        post = Post(
            len(self._merchants.posts), self._name, url.split("/")[3], url, orjson.loads(body)["id"],
            hashlib.sha256(body).digest(), at_ms, brokers_now_ms(),
        )  # fmt: skip
        try:
            result = await self._merchants.answer(post, answer_timeout_s)
            await self._process.gate.passed()
            post.result = result
        finally:
            post.ended_ms, post.ended_step = brokers_now_ms(), next(self._merchants.steps)
        return result
