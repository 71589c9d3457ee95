"""`hookline publish` as a person types it, on a real broker."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import schemas
from streams.errors import ConfigurationError, HooklineError, MalformedRecord
from tests.commands.ground import Ground
from topology.topics import EVENTS

pytestmark = pytest.mark.kafka


def test_an_event_is_published_with_its_cloudevents_headers_where_its_merchant_is(ground: Ground) -> None:
    (line,) = ground.run(
        "publish", "--merchant", "m1", "--type", "payin.success", "--data", '{"amount": 12345678901234567890123}', "--id", "e1",
        "--source", "shop", "--resource", "order-7", "--json",
    ).splitlines()  # fmt: skip
    place = json.loads(line)
    assert (place["id"], place["topic"]) == ("e1", ground.prefix + EVENTS.name)

    consumer = Consumer({**ground.kafka, "group.id": "reader"})
    consumer.assign([TopicPartition(place["topic"], place["partition"], place["offset"])])
    message = consumer.consume(1, 30)[0]
    consumer.close()
    headers: Any = message.headers()
    event = schemas.decode_event(message.value(), headers, message.key())
    assert (event.id, event.type, event.merchant, event.source, event.resource) == ("e1", "payin.success", "m1", "shop", "order-7")
    assert event.data == b'{"amount": 12345678901234567890123}'
    assert ("ce_id", b"e1") in headers and ("ce_subject", b"order-7") in headers


def test_an_event_without_an_id_is_given_one_of_its_own(ground: Ground) -> None:
    names = [ground.run("publish", "--merchant", "m1", "--type", "t", "--data", "{}").strip() for _ in range(2)]

    assert len(set(names)) == 2 and all(name.startswith("evt_") for name in names)
    assert [each["id"] for each in ground.events()] == names


def test_lines_are_published_in_their_order_and_bad_ones_are_told_and_left_out(ground: Ground, tmp_path: Path) -> None:
    good = [f'{{"id":"e{n}","merchant":"m1","type":"t","data":{{"n":{n}}}}}' for n in range(3_000)]
    large = f'{{"id":"large","type":"t","data":{{"n":"{"x" * 1_100_000}"}}}}'
    file = tmp_path / "events.jsonl"
    file.write_text("\n".join([*good[:2_000], "", "oops", large, '{"data":{}, "merchant":""}', *good[2_000:]]))

    result = ground.invoke("publish", "--file", str(file), "--merchant", "m1")

    assert result.exit_code == 1
    told = [line for line in result.stderr.splitlines() if line.startswith("line ")]
    assert [line.split(":")[0] for line in told] == ["line 2002", "line 2003", "line 2004"]
    assert "neither framed Avro nor JSON" in told[0] and "Publish a reference to it" in told[1] and "type is missing" in told[2]
    assert "3000 published, 3 left out" in result.stderr
    assert result.stdout.split() == [f"e{n}" for n in range(3_000)]
    assert [each["id"] for each in ground.events()] == [f"e{n}" for n in range(3_000)]


def test_lines_come_from_standard_input_too_and_the_last_needs_no_end(ground: Ground) -> None:
    lines = b'{"data":{"name":"\xc3\xa9"}}\n{"id":"e2","type":"u","data":{}}'
    ids = ground.run("publish", "--file", "-", "--merchant", "m1", "--type", "t", given=lines).split()

    assert [(each["id"], each["type"]) for each in ground.events()] == [(ids[0], "t"), ("e2", "u")]
    assert ground.events()[0]["data"] == b'{"name":"\xc3\xa9"}'


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        ([], ConfigurationError, "takes --merchant and --type and --data"),
        (["--merchant", "m1", "--type", "t"], ConfigurationError, "takes --data"),
        (["--merchant", "m1", "--type", "t", "--data", "{"], MalformedRecord, "the event's data is not JSON"),
        (["--merchant", "m 1", "--type", "t", "--data", "{}"], MalformedRecord, "must be visible ASCII without spaces"),
        (["--file", "nowhere.jsonl"], ConfigurationError, r"reading nowhere\.jsonl: No such file"),
        (["--file", "-", "--data", "{}"], ConfigurationError, "--file brings its own data and ids"),
    ],
)
def test_what_is_no_event_is_told_and_nothing_is_written(
    ground: Ground, arguments: list[str], error: type[HooklineError], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        ground.run("publish", *arguments)
    assert ground.events() == []
