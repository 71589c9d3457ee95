"""Everything of one payout is found in what its agents wrote, in the order of time; what is another's is not."""

from typing import Any

import pytest

import schemas
from streams.commands.payout_answers import answers_in, said_of
from streams.commands.payout_statuses import only
from streams.commands.payout_trace import TOPICS, Traced
from streams.errors import ConfigurationError
from streams.log.publisher import Published
from streams.log.records import Record
from streams.payouts.written import SOURCE
from tests.payouts.making import NOW
from tests.payouts.shards import PayoutShard, command, submit
from topology import topics
from topology.topics import DELIVERY_STATUS, PAYOUT_COMMANDS, Topic


class Taking:
    """One payout's trace of what a shard has written, each topic read whole as the command does it."""

    def __init__(self, merchant: str, payout_id: str) -> None:
        self.traced = Traced(merchant, payout_id)

    def take(self, topic: Topic, key: str, value: bytes | None, offset: int, timestamp_ms: int = NOW) -> None:
        self.traced.take(Record(topic, 0, offset, key.encode(), value, (), timestamp_ms))

    def written(self, shard: PayoutShard, *names: str) -> None:
        for topic in TOPICS:
            for offset, value in enumerate(shard.written[topic].values if topic in shard.written else ()):
                fields = shard.written[topic][offset]
                key = fields["id"] if topic is topics.LEDGER_ENTRIES else f"{fields['merchant']} {fields.get('payout_id')}"
                self.take(topic, fields["merchant"] if topic is topics.EVENTS else key, value, offset)

    def told(self) -> list[tuple[str, str]]:
        return [(each.what, each.reference) for each in self.traced.in_order()]


def test_a_payout_is_traced_from_its_command_to_the_merchant_s_answer() -> None:
    shard, taking = PayoutShard(available=5_000), Taking("m1", "p1")
    asked = submit()
    shard.send(asked)
    shard.send(submit(2))
    shard.reply("SUCCESS")
    taking.take(PAYOUT_COMMANDS, "m1", schemas.encode(schemas.PAYOUT_COMMAND, asked), 7)
    taking.take(PAYOUT_COMMANDS, "m1", schemas.encode(schemas.PAYOUT_COMMAND, submit(2, metadata={"about": "p1"})), 8)
    taking.take(PAYOUT_COMMANDS, "m1", b"{no command, and p1 is in it", 9)
    taking.written(shard)
    attempt = {
        "number": 1,
        "generation": 0,
        "at_ms": NOW + 5,
        "duration_ms": 1,
        "code": 200,
        "error": None,
        "ambiguous": False,
        "response": b"",
    }
    status: dict[str, Any] = {
        "event_id": "p1/payout.success/5", "event_type": "payout.success", "source": SOURCE, "merchant": "m1", "event_time_ms": NOW,
        "subscription_id": "sub_1", "state": "DELIVERED", "attempts": [attempt], "updated_ms": NOW,
        "origin": {"topic": "events", "partition": 0, "offset": 1},
    }  # fmt: skip
    for offset, fields in enumerate((status, status, {**status, "merchant": "m2"}, {**status, "source": "/core"})):
        key = f"{fields['source']} {fields['event_id']} sub_1"
        taking.take(DELIVERY_STATUS, key, schemas.encode(schemas.DELIVERY_STATUS, fields), offset)

    told = taking.told()
    whats = [what for what, _ in told]
    assert told[0] == ("command SUBMIT", "payout-commands-0@7") and whats.count("command SUBMIT") == 1
    assert told[-1] == ("webhook payout.success to sub_1, attempt 1", "delivery-status-0@0") and len(set(told)) == len(told)
    for what in ("task SUBMIT 1", "ledger RESERVATION PENDING", "ledger PAYOUT POSTED", "event payout.submitted", "event payout.success"):
        assert whats.count(what) == 1, whats
    steps = [what for what in whats if ": " in what]
    assert steps == [
        "RESERVED: reserved",
        "RESERVED to SUBMITTING: submit",
        "SUBMITTING to POSTING: submit 1 success",
        "POSTING to SUCCESS: posted",
    ]


def test_timers_and_what_a_channel_says_are_told_as_that() -> None:
    taking = Taking("m1", "p1")
    usual = {
        "task_id": "t",
        "payout_id": "p1",
        "merchant": "m1",
        "channel": "mobile_wallet",
        "number": 2,
        "duration_ms": 5,
        "replied_ms": NOW,
    }
    for offset, more in enumerate(
        ({"action": "POLL", "outcome": "LOST", "detail": "no answer"}, {"action": "WAIT", "outcome": "DUE", "code": "deadline"})
    ):
        taking.take(topics.PAYOUT_REPLIES, "m1 p1", schemas.encode(schemas.PAYOUT_REPLY, {**usual, **more}), offset)

    assert [(each.what, each.detail) for each in taking.traced.in_order()] == [
        ("reply POLL 2 LOST", "no answer, in 5 ms"), ("timer deadline ran out", None),
    ]  # fmt: skip


def test_what_was_deleted_and_what_is_of_a_namesake_is_left_out() -> None:
    shard, taking = PayoutShard(available=5_000), Taking("m2", "p1")
    shard.send(submit())
    taking.written(shard)
    taking.take(topics.PAYOUT_STATUS, "m2 p1", None, 99)

    assert taking.told() == []


# Which record answers a command


def statuses(shard: PayoutShard) -> list[dict[str, Any]]:
    return list(shard.written[topics.PAYOUT_STATUS])


def place(shard: PayoutShard) -> Published:
    """Of the last record that was planned."""
    return Published("t.payout-commands", 0, next(shard._offsets) - 1)


@pytest.mark.parametrize(
    ("asked", "payout_id", "message"),
    [
        (submit(7), "p7", "reserved"),
        (submit(8, payout_id="p9", idempotency_key="k1"), "p1", "submit repeated"),
        (submit(9, payout_id="p1"), "p1", "submit refused"),
        (submit(9, amount="1.001"), "p9", "bad_amount"),
        (command("CANCEL", {"payout_id": "p1"}), "p1", "cancel refused"),
        (command("RESOLVE", {"payout_id": "p1", "status": "FAILED", "resolved_by": "ann"}), "p1", "resolve refused"),
    ],
)
def test_each_command_s_answer_is_found_among_others(asked: dict[str, Any], payout_id: str, message: str) -> None:
    shard = PayoutShard(available=5_000)
    shard.send(submit())
    shard.send(asked)
    at = place(shard)
    shard.send(submit(20))
    found = answers_in(statuses(shard), asked["id"], at)

    assert found is not None and found["payout_id"] == payout_id
    assert message in [step["message"] for step in said_of(found, asked["id"], at)]


def test_a_command_that_changes_nothing_has_no_answer() -> None:
    shard = PayoutShard(available=5_000)
    shard.send(submit(1, scheduled_ms=NOW + 5_000))
    shard.send(command("CANCEL", {"payout_id": "p1"}))
    again = command("CANCEL", {"payout_id": "p1"})
    shard.send(again)

    assert answers_in(statuses(shard), again["id"], place(shard)) is None


def test_of_namesakes_the_merchant_must_be_said() -> None:
    one = {"merchant": "m1", "payout_id": "p"}
    assert only([one], "p") is one
    with pytest.raises(ConfigurationError, match="one of m1, m2"):
        only([{"merchant": "m2", "payout_id": "p"}, one], "p")
    with pytest.raises(ConfigurationError, match="there is no payout 'p'"):
        only([], "p")
