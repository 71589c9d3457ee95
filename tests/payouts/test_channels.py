"""One call to a channel: what its answers mean, what goes over the wire, and what is replied whatever goes wrong."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

import schemas
from streams.ladder.handler import RETURN
from streams.log.records import Outcome, Record
from streams.payouts.channels.demo import Behaviour, DemoChannel
from streams.payouts.channels.handler import Called, Job, Line, PutOff, conclude, perform, plan, poison
from streams.payouts.channels.http import HttpChannel, judge
from streams.payouts.channels.port import Answer, Task
from streams.payouts.policy import SUBMIT_WITHIN_MS
from streams.world import SystemWorld
from topology import topics
from topology.ladder import RUNG_TOPICS

FIELDS: dict[str, Any] = {
    "id": "m1/p1/submit/1", "payout_id": "p1", "merchant": "m1", "channel": "mobile_wallet", "action": "SUBMIT", "number": 1,
    "idempotency_key": "m1/p1", "amount_minor": 940, "currency": "PKR", "beneficiary": None, "channel_reference": None,
    "timeout_ms": 2_000, "issued_ms": 0, "trace_id": None, "metadata": {},
}  # fmt: skip


def said(status: str, **others: Any) -> bytes:
    return orjson.dumps({"status": status, **others})


@pytest.mark.parametrize(
    ("method", "code", "body", "outcome"),
    [
        ("POST", 200, said("accepted"), "ACCEPTED"), ("POST", 202, said("pending"), "PENDING"), ("GET", 200, said("success"), "SUCCESS"),
        ("POST", 200, said("failed"), "FAILED"), ("POST", 422, said("refused"), "REFUSED"), ("POST", 409, said("failed"), "FAILED"),
        ("GET", 404, said("not_found"), "NOT_FOUND"), ("GET", 404, b"<html>no such page</html>", "LOST"),
        ("POST", 404, said("not_found"), "LOST"),
        ("POST", 200, b"OK", "LOST"), ("POST", 200, said("great"), "LOST"), ("POST", 200, b"[]", "LOST"),
        ("POST", 302, said("success"), "LOST"),
        ("POST", 400, b"bad request", "LOST"), ("POST", 500, said("failed"), "LOST"), ("POST", 502, b"", "LOST"),
        ("POST", 503, b"", "LOST"),
        ("POST", 409, b"", "LOST"), ("POST", 429, b"", "ERROR"), ("POST", 401, b"", "ERROR"), ("POST", 425, said("error"), "ERROR"),
    ],
)  # fmt: skip
def test_only_a_channel_s_own_word_is_believed(method: str, code: int, body: bytes, outcome: str) -> None:
    assert judge(method, code, body, None).outcome == outcome


def test_what_a_channel_tells_by_the_way_is_kept() -> None:
    answer = judge("POST", 200, said("success", reference="r1", code="00", message="done", fee_minor=7), None)

    assert answer == Answer("SUCCESS", "r1", "00", "done", 7)
    assert judge("POST", 429, b"", 9_000).retry_after_ms == 9_000


class World(SystemWorld):
    """The real one, with the channels that a test has."""

    def __init__(self, **channels: Line) -> None:
        super().__init__()
        self.channels = channels


def job(world: World, **others: Any) -> Job:
    return Job(Task(**{**FIELDS, "issued_ms": world.now_ms(), **others}), b"m1 p1", b"value")


async def call(demo: DemoChannel, times: int = 1, secret: bytes = b"demo", **others: Any) -> list[Answer]:
    async with demo.serving() as url, aiohttp.ClientSession() as session:
        world = World()
        world.channels = {"mobile_wallet": Line(HttpChannel(url, "us", secret, session, world.now_ms), 10)}
        found = []
        for _ in range(times):
            called = await perform(job(world, **others), world)
            assert isinstance(called, Called)
            found.append(called.answer)
        return found


@pytest.mark.parametrize(
    ("behaviour", "outcome", "paid"),
    [
        ("success", "SUCCESS", 1), ("accepted", "PENDING", 0), ("never final", "PENDING", 0), ("failure", "FAILED", 0),
        ("refusal", "REFUSED", 0),
        ("lost answer", "LOST", 1), ("gibberish", "LOST", 1),
    ],
)  # fmt: skip
async def test_a_submission_over_http(behaviour: Behaviour, outcome: str, paid: int) -> None:
    demo = DemoChannel(behaves=lambda key: behaviour)

    (answer,) = await call(demo)

    assert answer.outcome == outcome, answer
    assert len(demo.paid()) == paid and demo.forged == 0


async def test_a_slow_channel_is_given_up_and_asked_by_its_key_what_became_of_it() -> None:
    demo = DemoChannel(behaves=lambda key: "slow", slow_s=0.4)

    (answer,) = await call(demo, timeout_ms=100)
    assert answer.outcome == "LOST"
    (answer,) = await call(demo, action="POLL")
    assert answer.outcome == "SUCCESS" and demo.paid() == {"m1/p1": 940}


async def test_the_same_key_is_paid_once_however_often_it_is_submitted() -> None:
    demo = DemoChannel(behaves=lambda key: "lost answer")

    answers = await call(demo, times=3)

    assert [answer.outcome for answer in answers] == ["LOST", "SUCCESS", "SUCCESS"]
    assert demo.paid() == {"m1/p1": 940}


async def test_a_channel_that_does_not_know_a_key_says_so() -> None:
    (answer,) = await call(DemoChannel(), action="POLL")
    assert answer.outcome == "NOT_FOUND"


async def test_a_wrong_secret_is_refused_by_the_channel_and_has_had_no_effect() -> None:
    demo = DemoChannel()
    (answer,) = await call(demo, secret=b"guess")
    assert (answer.outcome, demo.forged, demo.payments) == ("ERROR", 1, {})


async def test_no_connection_has_had_no_effect() -> None:
    demo = DemoChannel()
    async with demo.serving() as url:
        pass
    async with aiohttp.ClientSession() as session:
        world = World()
        world.channels = {"mobile_wallet": Line(HttpChannel(url, "us", b"demo", session, world.now_ms), 10)}
        called = await perform(job(world), world)
    assert isinstance(called, Called) and called.answer.outcome == "ERROR"


class Silent:
    """Never answers, and keeps to no time limit."""

    async def submit(self, task: Task, expires_ms: int) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    async def poll(self, task: Task) -> Answer:
        return await self.submit(task, 0)


async def test_a_submission_that_waited_too_long_is_not_begun_and_a_poll_is() -> None:
    world = World(mobile_wallet=Line(Silent(), 10))

    called = await perform(job(world, issued_ms=world.now_ms() - SUBMIT_WITHIN_MS - 1_000), world)

    assert isinstance(called, Called) and called.answer.outcome == "NOT_SENT"


async def test_a_channel_that_is_not_configured_is_not_called() -> None:
    world = World()
    called = await perform(job(world), world)
    assert isinstance(called, Called) and called.answer.outcome == "NOT_SENT"


async def test_a_channel_with_enough_under_way_is_left_alone_and_the_task_comes_back_over_the_ladder() -> None:
    line = Line(Silent(), 1)
    world = World(mobile_wallet=line)
    hanging = asyncio.create_task(perform(job(world), world))
    await asyncio.sleep(0)

    result = await perform(job(world), world)
    assert isinstance(result, PutOff)
    (write,) = conclude(job(world), result, None, world.now_ms()).writes  # type: ignore[arg-type]
    assert write.topic in RUNG_TOPICS and dict(write.headers)[RETURN] == topics.PAYOUT_TASKS.name.encode()
    assert (write.key, write.value) == (b"m1 p1", b"value")

    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    assert line.enter(), "a call that ends gives its place back"


def decoded(outcome: Outcome) -> dict[str, Any]:
    return next(schemas.decode(w.value or b"", schemas.PAYOUT_REPLY) for w in outcome.writes if w.topic is topics.PAYOUT_REPLIES)


def test_a_task_that_breaks_the_agent_is_dead_lettered_and_its_payout_hears_that_nobody_knows() -> None:
    value = schemas.encode(schemas.PAYOUT_TASK, FIELDS)
    record = Record(topics.PAYOUT_TASKS, 0, 7, b"m1 p1", value, (), 0)
    assert plan(record, None, 0)[0].task.task == Task(**FIELDS)  # type: ignore[arg-type]

    outcome = poison(record, "KeyError: surprise", 5)

    assert {write.topic for write in outcome.writes} == {topics.DLQ, topics.PAYOUT_REPLIES}
    assert (decoded(outcome)["outcome"], decoded(outcome)["number"]) == ("LOST", 1)
    assert [w.topic for w in poison(Record(topics.PAYOUT_TASKS, 0, 8, b"", b"x", (), 0), "x", 5).writes] == [topics.DLQ]
