"""What a person asks of deliveries that wait: retried now, cancelled, and given back after their subscription was disabled."""

import asyncio
from typing import Any

import pytest

from streams.delivery import order
from tests.replay.pipeline import Pipeline, now_ms, simulated
from topology import topics

HOUR_S = 3_600.0
SLOW = {"delays_ms": [86_400_000, 86_400_000]}


async def with_waiting(pipeline: Pipeline, count: int = 3, **wanted: Any) -> tuple[str, list[str]]:
    """A subscription whose deliveries have failed once and wait for a day; its endpoint works again."""
    name = pipeline.subscribe(overrides=SLOW, **wanted)
    pipeline.answer(name, 500)
    sent = pipeline.publish(count)
    await pipeline.until_all(name, "WAITING_RETRY", count)
    pipeline.answer(name, 200)
    return name, sent


def disable(pipeline: Pipeline, name: str) -> None:
    pipeline.change(name, state="DISABLED", state_reason="operator", state_since_ms=now_ms())


def enable(pipeline: Pipeline, name: str) -> None:
    pipeline.change(name, state="ACTIVE", state_reason=None, state_since_ms=now_ms())


def test_a_waiting_delivery_is_retried_now_and_once() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name, sent = await with_waiting(pipeline)
        pipeline.ask("RETRY_NOW", event_id=sent[1], subscription_id=name)
        await pipeline.until(lambda: pipeline.taken(name) == [sent[1]])
        await asyncio.sleep(50 * HOUR_S)

        assert sorted(pipeline.taken(name)) == sent
        status = pipeline.statuses(name)[sent[1]]
        assert (status["generation"], [each["code"] for each in status["attempts"]]) == (1, [500, 200])
        assert pipeline.standings() == {"FINISHED"}

    simulated(program)


def test_a_retry_now_that_fails_begins_a_fresh_schedule() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name, sent = await with_waiting(pipeline, 1)
        pipeline.answer(name, 500)
        pipeline.ask("RETRY_NOW", event_id=sent[0], subscription_id=name)
        await asyncio.sleep(100 * HOUR_S)

        attempts = pipeline.statuses(name)[sent[0]]["attempts"]
        assert [(each["generation"], each["number"]) for each in attempts] == [(0, 1), (1, 1), (1, 2), (1, 3)]
        assert pipeline.states(name)[sent[0]] == "DLQ"

    simulated(program)


@pytest.mark.parametrize("names_its_subscription", [True, False])
def test_a_waiting_delivery_is_cancelled_at_once_and_never_attempted_again(names_its_subscription: bool) -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name, sent = await with_waiting(pipeline)
        pipeline.ask("CANCEL", event_id=sent[0], subscription_id=name if names_its_subscription else None, note="paid by hand")
        await pipeline.until(lambda: pipeline.states(name)[sent[0]] == "CANCELLED")
        status = pipeline.statuses(name)[sent[0]]
        assert status["reason"] == "cancelled by sre: paid by hand"
        assert [each["code"] for each in status["attempts"]] == [500]
        await asyncio.sleep(24 * 9 * HOUR_S)

        assert sorted(pipeline.taken(name)) == sent[1:]

    simulated(program)


def test_the_next_of_an_ordered_resource_goes_when_the_waiting_one_is_cancelled() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name = pipeline.subscribe(overrides=SLOW, ordered=True)
        pipeline.answer(name, 500)
        sent = pipeline.publish(3, resource="r")
        await pipeline.until(lambda: sorted(pipeline.states(name).values()) == ["PENDING", "PENDING", "WAITING_RETRY"])
        pipeline.answer(name, 200)
        pipeline.ask("CANCEL", event_id=sent[1], subscription_id=name)
        await pipeline.until(lambda: pipeline.states(name)[sent[1]] == "CANCELLED")
        assert pipeline.taken(name) == []
        pipeline.ask("CANCEL", "rep_2", event_id=sent[0], subscription_id=name)
        await pipeline.until(lambda: pipeline.taken(name) == [sent[2]])
        await asyncio.sleep(50 * HOUR_S)

        assert pipeline.taken(name) == [sent[2]]

    simulated(program)


def test_a_delivery_under_way_is_cancelled_when_it_comes_to_wait() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name = pipeline.subscribe(overrides=SLOW)
        pipeline.answer(name, 500)
        pipeline.takes_s = 12.0
        sent = pipeline.publish()
        await asyncio.sleep(2)
        pipeline.ask("CANCEL", event_id=sent[0], subscription_id=name)
        await asyncio.sleep(5)
        assert pipeline.states(name) == {}
        await pipeline.until(lambda: pipeline.states(name) == {sent[0]: "CANCELLED"})

        assert [each["code"] for each in pipeline.statuses(name)[sent[0]]["attempts"]] == [500]

    simulated(program)


def test_a_parked_delivery_is_left_by_a_retry_now_and_cancelled_by_a_cancel() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name = pipeline.subscribe()
        pipeline.change(name, state="PAUSED")
        sent = pipeline.publish(3)
        await pipeline.until_all(name, "PENDING", 3)
        pipeline.ask("RETRY_NOW", event_id=sent[0], subscription_id=name)
        pipeline.ask("CANCEL", "rep_2", event_id=sent[1], subscription_id=name, source="/core")
        await pipeline.until(lambda: pipeline.states(name)[sent[1]] == "CANCELLED")
        assert pipeline.taken(name) == []
        pipeline.change(name, state="ACTIVE")
        await pipeline.until(lambda: len(pipeline.taken(name)) == 2)
        await asyncio.sleep(600)

        assert sorted(pipeline.taken(name)) == [sent[0], sent[2]]

    simulated(program)


@pytest.mark.parametrize("seed", range(3))
def test_disabling_cancels_what_waits_and_is_parked_and_all_of_it_can_be_had_back_once(seed: int) -> None:
    async def program() -> None:
        pipeline = Pipeline(seed, keep_every_s=300)
        name, sent = await with_waiting(pipeline, 120)
        pipeline.change(name, state="PAUSED")
        parked = pipeline.publish(120)
        await pipeline.until(lambda: sorted(pipeline.states(name).values()) == ["PENDING"] * 120 + ["WAITING_RETRY"] * 120)
        disable(pipeline, name)
        await pipeline.until_all(name, "CANCELLED", 240)
        missed = pipeline.publish(20)
        await asyncio.sleep(24 * 8 * HOUR_S)
        assert pipeline.taken(name) == []

        enable(pipeline, name)
        pipeline.ask("START", from_log="EVENTS", subscription_id=name, from_ms=0, missing_only=True, include_cancelled=True)
        await asyncio.sleep(pipeline.chance.uniform(0.5, 3))
        pipeline.kill("deliver")
        await pipeline.until_finished()
        await pipeline.until_all(name, "DELIVERED", 260)
        await asyncio.sleep(24 * 4 * HOUR_S)

        assert set(pipeline.taken(name)) == {*sent, *parked, *missed}
        again = len(pipeline.taken(name)) - 260
        assert again <= 10, "more than were under way when the worker died"

    simulated(program)


def test_what_the_disabling_cancelled_comes_back_in_the_order_of_its_events() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name = pipeline.subscribe(overrides=SLOW, ordered=True)
        pipeline.answer(name, 500)
        sent = pipeline.publish(6, resource="r")
        await pipeline.until(lambda: sorted(pipeline.states(name).values()) == ["PENDING"] * 5 + ["WAITING_RETRY"])
        pipeline.answer(name, 200)
        disable(pipeline, name)
        await pipeline.until_all(name, "CANCELLED", 6)
        enable(pipeline, name)
        pipeline.ask("START", from_log="EVENTS", subscription_id=name, from_ms=now_ms(), missing_only=True, include_cancelled=True)
        await pipeline.until_all(name, "DELIVERED", 6)

        assert pipeline.taken(name) == sent
        assert [pipeline.statuses(name)[event]["sequence"] for event in sent] == [1, 2, 3, 4, 5, 6]

    simulated(program)


@pytest.mark.parametrize("remembered_ms", [3_600_000, 604_800_000])
def test_what_was_replayed_from_the_events_does_not_come_back_a_second_time(remembered_ms: int) -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300, remembered_ms=remembered_ms)
        name, sent = await with_waiting(pipeline)
        disable(pipeline, name)
        await pipeline.until_all(name, "CANCELLED", 3)
        enable(pipeline, name)
        pipeline.ask("START", from_log="EVENTS", subscription_id=name, from_ms=0)
        await pipeline.until_all(name, "DELIVERED", 3)
        await asyncio.sleep(2 * HOUR_S)
        pipeline.ask("START", "rep_2", from_log="EVENTS", subscription_id=name, from_ms=now_ms(), include_cancelled=True)
        await pipeline.until_finished("rep_2")
        await asyncio.sleep(600)

        assert sorted(pipeline.taken(name)) == sent

    simulated(program)


def test_a_deleted_subscriptions_deliveries_are_cancelled() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name, _ = await with_waiting(pipeline)
        pipeline.write_subscription(name, None)
        await pipeline.until_all(name, "CANCELLED", 3)

        assert {status["reason"] for status in pipeline.statuses(name).values()} == {"its subscription was deleted"}

    simulated(program)


def test_a_pause_is_no_disabling() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name, sent = await with_waiting(pipeline)
        pipeline.change(name, state="PAUSED")
        await asyncio.sleep(60)
        assert set(pipeline.states(name).values()) == {"WAITING_RETRY"}
        pipeline.change(name, state="ACTIVE")
        await asyncio.sleep(30 * HOUR_S)
        assert set(pipeline.states(name).values()) == {"DELIVERED"}
        assert sorted(pipeline.taken(name)) == sent

    simulated(program)


def test_other_resources_go_on_behind_hundreds_parked_for_one() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name = pipeline.subscribe(overrides=SLOW, ordered=True)
        pipeline.answer(name, 500)
        pipeline.publish(1, resource="a")
        await pipeline.until_all(name, "WAITING_RETRY", 1)
        pipeline.answer(name, 200)
        pipeline.change(name, state="PAUSED")
        pipeline.publish(600, resource="a")
        others = [pipeline.publish(2, resource=f"z{number}") for number in range(3)]
        await pipeline.until(lambda: len(pipeline.states(name)) == 607)
        pipeline.change(name, state="ACTIVE")
        await pipeline.until(lambda: len(pipeline.taken(name)) == 6)

        taken = pipeline.taken(name)
        assert all(taken.index(first) < taken.index(second) for first, second in others)

    simulated(program)


def test_more_waiting_resources_than_are_looked_at_at_once_hide_no_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "LOOKED_AT_ONCE", 2)

    async def program() -> None:
        pipeline = Pipeline()
        name = pipeline.subscribe(overrides=SLOW, ordered=True)
        pipeline.answer(name, 500)
        for resource in "abcde":
            pipeline.publish(1, resource=resource)
        await pipeline.until_all(name, "WAITING_RETRY", 5)
        pipeline.answer(name, 200)
        pipeline.change(name, state="PAUSED")
        for resource in "abcde":
            pipeline.publish(3, resource=resource)
        free = pipeline.publish(1, resource="z")
        await pipeline.until(lambda: len(pipeline.states(name)) == 21)
        pipeline.change(name, state="ACTIVE")
        await pipeline.until(lambda: pipeline.taken(name) == free)

    simulated(program)


def test_a_parked_head_that_is_cancelled_does_not_follow_itself() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=1_000)
        name = pipeline.subscribe(overrides={"delays_ms": [60_000]}, ordered=True)
        pipeline.answer(name, 500)
        sent = pipeline.publish(2, resource="r")
        await pipeline.until(lambda: sorted(pipeline.states(name).values()) == ["PENDING", "WAITING_RETRY"])
        pipeline.answer(name, 200)
        pipeline.change(name, state="PAUSED")
        await pipeline.until(lambda: pipeline.states(name)[sent[0]] == "PENDING")
        pipeline.change(name, state="ACTIVE")
        pipeline.ask("CANCEL", event_id=sent[0], subscription_id=name)
        await pipeline.until(lambda: pipeline.taken(name) != [])
        await asyncio.sleep(2 * HOUR_S)

        assert pipeline.taken(name) == [sent[1]]
        assert pipeline.states(name) == {sent[0]: "CANCELLED", sent[1]: "DELIVERED"}

    simulated(program)


def test_an_old_copy_that_comes_back_when_all_is_forgotten_is_not_sent() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300, remembered_ms=3_600_000)
        name = pipeline.subscribe(overrides=SLOW)
        pipeline.answer(name, 500)
        sent = pipeline.publish()
        await pipeline.until_all(name, "WAITING_RETRY", 1)
        pipeline.answer(name, 200)
        pipeline.ask("CANCEL", event_id=sent[0], subscription_id=name)
        await asyncio.sleep(50 * HOUR_S)

        state = {entry.key: entry.value for entry in pipeline.cluster.read((topics.CHANGELOG_DELIVER.name, 0), 0, 10**9)}
        assert [value for key, value in state.items() if key and key.startswith((b"d/", b"w/"))] == [None, None]
        assert pipeline.taken(name) == []

    simulated(program)


def test_a_delivery_that_is_taken_at_once_costs_one_entry_and_no_copy() -> None:
    async def program() -> None:
        pipeline = Pipeline(keep_every_s=300)
        name = pipeline.subscribe()
        pipeline.publish()
        await pipeline.until_all(name, "DELIVERED", 1)

        keys = [entry.key or b"" for entry in pipeline.cluster.read((topics.CHANGELOG_DELIVER.name, 0), 0, 10**9)]
        assert [key[:2] for key in keys if key[:1] != b"\0"] == [b"d/"]

    simulated(program)
