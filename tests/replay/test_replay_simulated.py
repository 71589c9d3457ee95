"""Replays on the simulated log: exactly once though workers die, paused, resumed and stopped, and the depth that falls."""

import asyncio
from typing import Any

import pytest

import schemas
from schemas.event import Event
from schemas.events import encode_event
from streams.log.simulated.log import Faults
from tests.replay.pipeline import PARTITIONS, START_MS, Pipeline, now_ms, simulated
from topology import topics


async def with_dead_letters(pipeline: Pipeline, count: int = 12) -> tuple[str, list[str]]:
    """A subscription whose endpoint failed for all of these events, and works again."""
    name = pipeline.subscribe()
    pipeline.answer(name, 500)
    sent = pipeline.publish(count)
    await pipeline.until_all(name, "DLQ", count)
    pipeline.answer(name, 200)
    return name, sent


@pytest.mark.parametrize("seed", range(8))
def test_every_dead_letter_is_delivered_once_with_its_body_though_workers_die(seed: int) -> None:
    async def program() -> None:
        pipeline = Pipeline(seed, Faults(abort=0.1, lost_answer=0.1, step_ms_max=10.0))
        name, sent = await with_dead_letters(pipeline, 40)
        pipeline.ask("START", rate_per_s=20.0)
        for _ in range(6):
            await asyncio.sleep(pipeline.chance.uniform(0.0, 1.5))
            pipeline.kill(pipeline.chance.choice(["replay", "replay", "ladder"]), pipeline.chance.uniform(0.1, 12))
        await pipeline.until_finished()
        await pipeline.until_all(name, "DELIVERED", 40)
        await asyncio.sleep(600)

        assert sorted(pipeline.taken(name)) == sent
        bodies = {post.event: {other.body for other in pipeline.posts[pipeline.url(name)] if other.event == post.event} for post in
                  pipeline.posts[pipeline.url(name)]}  # fmt: skip
        assert all(len(each) == 1 for each in bodies.values())
        assert pipeline.total("sent") == pipeline.total("matched") == 40
        assert pipeline.open_letters() == {}
        statuses = pipeline.statuses(name).values()
        assert {(status["generation"], status["replay_id"], len(status["attempts"])) for status in statuses} == {(1, "rep_1", 3)}

    simulated(program)


def test_a_dry_run_counts_and_sends_nothing() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        name, _ = await with_dead_letters(pipeline)
        pipeline.ask("START", dry_run=True)
        await pipeline.until_finished()

        assert (pipeline.total("matched"), pipeline.total("sent")) == (12, 0)
        assert len(pipeline.open_letters()) == 12
        assert pipeline.taken(name) == []

    simulated(program)


def test_only_what_is_asked_for_is_replayed_and_the_rest_stays() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        name, sent = await with_dead_letters(pipeline)
        pipeline.ask("START", event_id=sent[3], subscription_id=name)
        await pipeline.until_finished()
        await pipeline.until(lambda: len(pipeline.taken(name)) == 1)

        assert pipeline.taken(name) == [sent[3]]
        assert len(pipeline.open_letters()) == 11

    simulated(program)


def test_a_replay_is_paused_resumed_and_stopped() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        name, sent = await with_dead_letters(pipeline, 60)
        pipeline.ask("START", subscription_id=name, rate_per_s=2.0)
        await pipeline.until(lambda: len(pipeline.taken(name)) >= 10)
        pipeline.ask("PAUSE")
        await pipeline.until(lambda: "PAUSED" in pipeline.standings() and "RUNNING" not in pipeline.standings())
        await asyncio.sleep(60)
        paused_at = len(pipeline.taken(name))
        await asyncio.sleep(600)
        assert len(pipeline.taken(name)) == paused_at < 60

        pipeline.ask("RESUME")
        pipeline.kill("replay", 0.1)
        await pipeline.until(lambda: len(pipeline.taken(name)) >= paused_at + 10)
        pipeline.ask("STOP")
        await pipeline.until(lambda: "STOPPED" in pipeline.standings() and "RUNNING" not in pipeline.standings())
        await asyncio.sleep(600)
        stopped_at = len(pipeline.taken(name))
        assert stopped_at < 60
        assert len(set(pipeline.taken(name))) == stopped_at == pipeline.total("sent")
        pipeline.ask("RESUME")
        await asyncio.sleep(600)
        assert len(pipeline.taken(name)) == stopped_at

        pipeline.ask("START", "rep_2")
        await pipeline.until_finished("rep_2")
        await pipeline.until(lambda: len(pipeline.taken(name)) == 60)
        assert sorted(pipeline.taken(name)) == sent

    simulated(program)


def test_a_rate_is_kept() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        name, _ = await with_dead_letters(pipeline, 60)
        began_ms = now_ms()
        pipeline.ask("START", subscription_id=name, rate_per_s=2.0)
        await pipeline.until_finished()

        assert now_ms() - began_ms >= 29_000

    simulated(program)


def test_the_same_request_again_changes_nothing() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        name, _ = await with_dead_letters(pipeline, 3)
        pipeline.ask("START")
        await pipeline.until_finished()
        await pipeline.until_all(name, "DELIVERED", 3)
        told = len(pipeline.read(topics.REPLAY_REQUESTS, schemas.REPLAY_REQUEST))
        pipeline.ask("START")
        await asyncio.sleep(600)

        assert len(pipeline.read(topics.REPLAY_REQUESTS, schemas.REPLAY_REQUEST)) == told + PARTITIONS
        assert len(pipeline.taken(name)) == 3

    simulated(program)


@pytest.mark.parametrize("seed", range(4))
def test_two_replays_at_once_send_each_letter_once(seed: int) -> None:
    async def program() -> None:
        pipeline = Pipeline(seed, Faults(step_ms_max=50.0))
        name, sent = await with_dead_letters(pipeline, 60)
        for replay_id in ("rep_1", "rep_2"):
            pipeline.ask("START", replay_id, subscription_id=name)
        for replay_id in ("rep_1", "rep_2"):
            await pipeline.until_finished(replay_id)
        await pipeline.until_all(name, "DELIVERED", 60)
        await asyncio.sleep(600)

        assert sorted(pipeline.taken(name)) == sent
        assert pipeline.total("sent", "rep_1") + pipeline.total("sent", "rep_2") == 60
        assert len(pipeline.replayed()) == 60

    simulated(program)


@pytest.mark.parametrize("seed", range(4))
def test_letters_that_the_agent_had_not_seen_when_it_was_asked_are_part_of_it(seed: int) -> None:
    async def program() -> None:
        pipeline = Pipeline(seed)
        name = pipeline.subscribe()
        pipeline.answer(name, 500)
        pipeline.kill("replay", 3_600)
        pipeline.publish(300)
        await pipeline.until_all(name, "DLQ", 300)
        pipeline.answer(name, 200)
        pipeline.ask("START", subscription_id=name)
        await pipeline.until_finished()

        assert pipeline.total("sent") == 300

    simulated(program)


def test_what_dies_again_is_a_new_letter_and_can_be_replayed_again() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        name, sent = await with_dead_letters(pipeline, 2)
        pipeline.answer(name, 500)
        pipeline.ask("START")
        await pipeline.until(lambda: {letter["generation"] for letter in pipeline.open_letters().values()} == {1})
        pipeline.answer(name, 200)
        pipeline.ask("START", "rep_2")
        await pipeline.until_finished("rep_2")
        await pipeline.until_all(name, "DELIVERED", 2)

        assert sorted(pipeline.taken(name)) == sent
        assert pipeline.open_letters() == {}

    simulated(program)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"subscription_id": "nobody"}, "there is no subscription nobody"),
        ({"from_log": "EVENTS"}, "name it"),
        ({"from_ms": 5, "to_ms": 5}, "before it begins"),
        ({"rate_per_s": 0.0}, "no rate"),
    ],
)
def test_a_bad_request_is_refused_with_its_reason_and_poisons_nothing(asked: dict[str, Any], reason: str) -> None:
    async def program() -> None:
        pipeline = Pipeline()
        pipeline.subscribe()
        pipeline.ask("START", **asked)
        await pipeline.until(lambda: pipeline.standings() == {"REFUSED"})

        assert all(reason in (each.reason or "") for each in pipeline.progress())
        assert pipeline.open_letters() == {}

    simulated(program)


def test_letters_of_a_disabled_or_deleted_subscription_are_skipped_and_stay() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        name, _ = await with_dead_letters(pipeline, 3)
        pipeline.change(name, state="DISABLED", state_reason="operator", state_since_ms=now_ms())
        pipeline.ask("START")
        await pipeline.until_finished()
        assert (pipeline.total("matched"), pipeline.total("skipped"), pipeline.total("sent")) == (3, 3, 0)
        assert any("is disabled" in (each.reason or "") for each in pipeline.progress())
        assert len(pipeline.open_letters()) == 3

    simulated(program)


def test_letters_are_acknowledged_and_discarded_with_who_and_why() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        _, sent = await with_dead_letters(pipeline, 4)
        pipeline.ask("ACKNOWLEDGE", "ack", event_id=sent[0], note="known")
        await pipeline.until_finished("ack")
        pipeline.ask("DISCARD", "away", event_id=sent[1], note="a test")
        await pipeline.until_finished("away")

        left = {letter["event_id"]: letter for letter in pipeline.open_letters().values()}
        assert sorted(left) == [sent[0], sent[2], sent[3]]
        assert (left[sent[0]]["triage"], left[sent[0]]["triage_by"], left[sent[0]]["triage_note"]) == ("ACKNOWLEDGED", "sre", "known")
        assert left[sent[0]]["payload"] is None
        pipeline.ask("START")
        await pipeline.until_finished()
        assert pipeline.total("sent") == 3
        assert pipeline.open_letters() == {}

    simulated(program)


def test_a_poison_record_goes_back_byte_for_byte_to_where_it_came_from() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        pipeline.append(topics.EVENTS, 1, b"m1", b"\xffno event", [("content-type", b"application/json")])
        await pipeline.until(lambda: len(pipeline.open_letters()) == 1)
        pipeline.ask("START", reason="MALFORMED")
        await pipeline.until_finished()
        await pipeline.until(lambda: pipeline.cluster.stable_end((topics.EVENTS.name, 1)) >= 2)

        first, again = list(pipeline.cluster.read((topics.EVENTS.name, 1), 0, 10))
        assert (again.key, again.value, list(again.headers)) == (first.key, first.value, list(first.headers))

    simulated(program)


def test_a_record_too_large_for_its_letter_is_read_where_it_is() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        large = b"\xff" * 500_000
        pipeline.append(topics.EVENTS, 0, b"m0", large)
        await pipeline.until(lambda: [letter["payload"] for letter in pipeline.open_letters().values()] == [None])
        pipeline.ask("START")
        await pipeline.until_finished()

        assert [entry.value for entry in pipeline.cluster.read((topics.EVENTS.name, 0), 0, 10)] == [large, large]

    simulated(program)


def test_events_are_replayed_from_a_time_on_to_one_subscription() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        name, other = pipeline.subscribe(), pipeline.subscribe()
        first = pipeline.publish(3)
        await pipeline.until_all(name, "DELIVERED", 3)
        await asyncio.sleep(60)
        from_ms = now_ms()
        second = pipeline.publish(30)
        pipeline.append(topics.EVENTS, 0, b"m0", b"\xffno event")
        await pipeline.until_all(name, "DELIVERED", 33)
        pipeline.ask("START", from_log="EVENTS", subscription_id=name, from_ms=from_ms)
        pipeline.kill("replay")
        await pipeline.until_finished()
        await pipeline.until(lambda: len(pipeline.taken(name)) == 63)
        await asyncio.sleep(600)

        assert sorted(pipeline.taken(name)) == sorted([*first, *second, *second])
        assert sorted(pipeline.taken(other)) == sorted([*first, *second])
        assert (pipeline.total("sent"), pipeline.total("skipped")) == (30, 1)
        bodies = {(post.event, post.body) for post in pipeline.posts[pipeline.url(name)]}
        assert len(bodies) == 33

    simulated(program)


def test_an_ordered_subscriptions_events_keep_their_numbers_in_a_replay() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        name = pipeline.subscribe(ordered=True)
        sent = pipeline.publish(5, resource="r")
        await pipeline.until_all(name, "DELIVERED", 5)
        pipeline.ask("START", from_log="EVENTS", subscription_id=name, from_ms=START_MS)
        await pipeline.until_finished()
        await pipeline.until(lambda: len(pipeline.taken(name)) == 10)

        assert pipeline.taken(name)[:5] == sent
        assert len({(post.event, post.body) for post in pipeline.posts[pipeline.url(name)]}) == 5

    simulated(program)


def test_the_same_event_twice_in_the_log_is_replayed_once() -> None:
    async def program() -> None:
        pipeline = Pipeline()
        name = pipeline.subscribe()
        event = Event(id="evt_twice", type="payin.success", source="/core", merchant="m0", time_ms=START_MS, data=b"{}")
        value, headers = encode_event(event)
        for _ in range(2):
            pipeline.append(topics.EVENTS, 0, b"m0", value, headers)
            await asyncio.sleep(5)
        pipeline.ask("START", from_log="EVENTS", subscription_id=name, rate_per_s=0.1)
        await pipeline.until_finished()
        await asyncio.sleep(600)

        assert pipeline.taken(name) == ["evt_twice"] * 2

    simulated(program)
