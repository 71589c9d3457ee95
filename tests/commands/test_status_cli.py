"""`hookline status` as a person types it, on a real broker."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from schemas.event import Event
from streams.errors import ConfigurationError
from streams.log.offsets import pack
from tests.commands.ground import ATTEMPT, Ground
from topology.topics import EVENTS

pytestmark = pytest.mark.kafka

EVENT = Event(id="e1", type="payin.success", source="shop", merchant="m1", time_ms=0, data=b"{}")


def commit(ground: Ground, offset: int, metadata: str) -> None:
    """As the deliver role does."""
    consumer = Consumer({**ground.kafka, "group.id": f"{ground.prefix}hookline-deliver"})
    consumer.commit(offsets=[TopicPartition(ground.prefix + EVENTS.name, 0, offset, metadata)], asynchronous=False)
    consumer.close()


def test_every_delivery_is_told_with_its_attempts_by_its_last_record(ground: Ground) -> None:
    ground.write_event(EVENT)
    ground.write_status(subscription_id="sub_1", state="PENDING")
    ground.write_status(
        subscription_id="sub_1", state="WAITING_RETRY", waits_for="RETRY", next_retry_ms=4_000_000_000_000, attempts=[ATTEMPT],
        reason="no answer", url="https://example.com/hook", resource="order-7", sequence=4,
    )  # fmt: skip
    ground.write_status(subscription_id="sub_2", state="DELIVERED", generation=1, replay_id="rep_7")
    ground.write_status(subscription_id="sub_1", event_id="e10", state="CANCELLED")

    said = ground.run("status", "e1")
    for part in (
        "e1 to sub_1: WAITING_RETRY", "waits for its next attempt, due in", "tried next at 2096-10-02T07:06:40.000Z", "because no answer",
        "about order-7, its number 4", "no answer within 15 s", "ambiguous", "e1 to sub_2: DELIVERED, replay 1", "sent again by rep_7",
    ):  # fmt: skip
        assert part in said
    assert "CANCELLED" not in said

    (only,) = ground.json("status", "e1", "--subscription", "sub_1")
    assert (only["state"], only["attempts"][0]["ambiguous"], only["attempts"][0]["duration_ms"]) == ("WAITING_RETRY", True, 12)


def test_an_event_without_a_status_is_pending_for_each_subscription_that_wants_it(ground: Ground) -> None:
    wanting, disabled = ground.subscribe("m1", "--event", "payin.*"), ground.subscribe("m1", "--disabled")
    ground.subscribe("m1", "--event", "payout.*")
    ground.subscribe("m2")
    ground.write_event(EVENT)

    told = {each["subscription_id"]: each["state"] for each in ground.json("status", "e1")}
    assert told == {wanting: "PENDING", disabled: "NOT_GIVEN"}
    said = ground.run("status", "e1")
    assert f"e1 to {wanting}: PENDING\n  no worker has read it yet" in said
    assert f"hookline subscriptions enable {disabled} --replay" in said


def test_of_an_event_under_way_those_that_have_not_ended_are_pending(ground: Ground) -> None:
    told, waiting = ground.subscribe("m1"), ground.subscribe("m1")
    ground.write_event(EVENT)
    ground.write_status(subscription_id=told, state="DELIVERED")
    commit(ground, 0, f"1 w-1 {pack(0, [], 1)}")

    assert {each["subscription_id"]: each["state"] for each in ground.json("status", "e1")} == {told: "DELIVERED", waiting: "PENDING"}
    assert "a worker has it" in ground.run("status", "e1")


def test_a_subscription_made_after_the_event_was_done_is_not_waited_for(ground: Ground) -> None:
    ground.write_event(EVENT)
    commit(ground, 1, f"1 w-1 {pack(1, [], 1)}")
    late = ground.subscribe("m1")

    (found,) = ground.json("status", "e1")
    assert (found["subscription_id"], found["state"]) == (late, "NOT_GIVEN")


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (b'{"id":"e\\u0031","type":"payin.success","data":{}}', None),
        (b"{}", [("ce_specversion", b"1.0"), ("ce_id", b"e1"), ("ce_type", b"payin.success"), ("ce_source", b"shop")]),
    ],
)
def test_an_event_is_found_in_whatever_form_it_was_written(ground: Ground, value: bytes, headers: list[tuple[str, bytes]] | None) -> None:
    wanting = ground.subscribe("m1")
    ground.write(EVENTS, b"m1", b"no event at all \\", partition=1)
    ground.write(EVENTS, b"m1", value, headers, partition=1)

    assert [each["subscription_id"] for each in ground.json("status", "e1")] == [wanting]


def test_an_event_that_nobody_wants_is_told_apart_from_one_that_is_unknown(ground: Ground) -> None:
    ground.write_event(EVENT)

    assert ground.run("status", "e1") == "No subscription wants event e1: nothing was or will be delivered\n"
    with pytest.raises(ConfigurationError, match=f"there is no event 'e2' in {ground.prefix}events, and no delivery of one"):
        ground.run("status", "e2")


def test_with_since_an_older_event_is_not_looked_for(ground: Ground) -> None:
    ground.write(EVENTS, b"m1", b'{"id":"e1","type":"payin.success","data":{}}', timestamp_ms=1_700_000_000_000)

    assert "No subscription wants" in ground.run("status", "e1", "--since", "2023-11-14T22:13:20Z")
    with pytest.raises(ConfigurationError, match="since 1h"):
        ground.run("status", "e1", "--since", "1h")
