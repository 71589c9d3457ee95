"""The publisher against a real broker: order, placement, back pressure, and what it says when a record is not taken."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from streams.errors import LogError
from streams.log.publisher import Published, Publisher
from tests.log.clients import create, read_to_end
from topology.broker import Broker
from topology.topics import Topic

pytestmark = pytest.mark.kafka

EVENTS = Topic("published", "What the tests publish.", "key", None)
SMALL = Topic("small", "Takes little.", "key", None, record_bytes_max=2_000)
MISSING = Topic("missing", "Never made.", "key", None)
PARTITIONS = 7

Open = Callable[..., Publisher]


@pytest.fixture
def kafka(broker: Broker) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}


@pytest.fixture
def opened(kafka: dict[str, Any], prefix: str) -> Open:
    """Topics of this test's own, and a publisher to them: `opened(**{"linger.ms": 5})`."""
    admin = AdminClient(kafka)
    create(admin, prefix, PARTITIONS, EVENTS, SMALL)
    return lambda **others: Publisher({**kafka, **others}, lambda topic: prefix + topic.name)


def values_by_key(kafka: dict[str, Any], topic: str) -> dict[bytes, list[bytes]]:
    values: dict[bytes, list[bytes]] = defaultdict(list)
    for key, value in read_to_end(kafka, topic, PARTITIONS):
        values[key].append(value)
    return values


async def test_records_of_one_key_are_written_in_the_order_they_were_published(opened: Open, kafka: dict[str, Any], prefix: str) -> None:
    async with opened() as publisher:
        await asyncio.gather(*(publisher.publish(EVENTS, b"k%d" % (n % 20), b"%d" % n) for n in range(2_000)))
    values = values_by_key(kafka, prefix + EVENTS.name)
    assert values == {b"k%d" % key: [b"%d" % n for n in range(key, 2_000, 20)] for key in range(20)}


async def test_an_awaited_record_is_where_it_says_with_its_headers(opened: Open, kafka: dict[str, Any], prefix: str) -> None:
    headers = [("ce_id", b"1"), ("ce_type", b"payin.success"), ("ce_id", b"")]
    async with opened() as publisher:
        await publisher.publish(EVENTS, b"merchant", b"before")
        published = await publisher.publish(EVENTS, b"merchant", b"value", headers)
        bare = await publisher.publish(EVENTS, None, None)
    assert isinstance(published, Published)
    assert (published.topic, published.offset) == (prefix + EVENTS.name, 1)
    consumer = Consumer({**kafka, "group.id": prefix})
    consumer.assign([TopicPartition(*published)])
    message = consumer.consume(1, 30)[0]
    assert (message.key(), message.value(), message.headers()) == (b"merchant", b"value", headers)
    consumer.assign([TopicPartition(*bare)])
    message = consumer.consume(1, 30)[0]
    assert (message.key(), message.value(), message.headers()) == (None, None, None)
    consumer.close()


async def test_a_record_goes_to_the_partition_that_it_names(opened: Open) -> None:
    async with opened() as publisher:
        published = [await publisher.publish(EVENTS, b"one", b"v", partition=number) for number in range(PARTITIONS)]
    assert [record.partition for record in published] == list(range(PARTITIONS))


async def test_with_a_tiny_queue_publishing_waits_for_room_and_keeps_its_order(opened: Open, kafka: dict[str, Any], prefix: str) -> None:
    async with opened(**{"queue.buffering.max.messages": 10}) as publisher:
        published = await asyncio.gather(*(publisher.publish(EVENTS, b"one", b"%d" % n) for n in range(1_000)))
    assert [record.offset for record in published] == list(range(1_000))
    assert values_by_key(kafka, prefix + EVENTS.name) == {b"one": [b"%d" % n for n in range(1_000)]}


async def test_a_publisher_who_gave_up_while_waiting_for_room_holds_up_nobody(opened: Open) -> None:
    async with opened(**{"queue.buffering.max.messages": 5}) as publisher:
        publishing = [asyncio.create_task(publisher.publish(EVENTS, b"one", b"%d" % n)) for n in range(100)]
        await asyncio.sleep(0)
        for task in publishing[::2]:
            task.cancel()
        results = await asyncio.gather(*publishing, return_exceptions=True)
    assert all(isinstance(result, Published) for result in results[1::2])


async def test_an_unknown_topic_is_told_with_what_to_do(opened: Open, prefix: str) -> None:
    async with opened(**{"topic.metadata.propagation.max.ms": 100}) as publisher:
        with pytest.raises(LogError, match=rf"publishing to {prefix}missing, key b'k', 106 bytes: .*hookline topology apply"):
            await publisher.publish(MISSING, b"k", b"value")
        assert await publisher.publish(EVENTS, b"k", b"value")


@pytest.mark.parametrize(("topic", "size"), [(SMALL, 5_000), (EVENTS, 2_000_000)], ids=["for its topic", "for any"])
async def test_a_record_too_large_is_told_and_the_others_are_written(opened: Open, topic: Topic, size: int) -> None:
    async with opened() as publisher:
        results = await asyncio.gather(*(publisher.publish(topic, b"k", bytes(each)) for each in (10, size, 20)), return_exceptions=True)
    assert [type(result) for result in results] == [Published, LogError, Published]
    assert "publish less, or a reference to it" in str(results[1])


async def test_a_record_too_large_for_a_topic_that_takes_less_than_declared_is_told_by_the_broker(opened: Open) -> None:
    async with opened(**{"compression.type": "none"}) as publisher:
        with pytest.raises(LogError, match=r"key b'k', 5101 bytes: .*publish less, or a reference to it"):
            await publisher.publish(replace(SMALL, record_bytes_max=1_000_000), b"k", bytes(5_000))
        assert await publisher.publish(SMALL, b"k", b"after")


async def test_a_closed_publisher_has_written_everything_and_takes_no_more(opened: Open, kafka: dict[str, Any], prefix: str) -> None:
    publisher = opened(**{"linger.ms": 60_000, "delivery.timeout.ms": 120_000})
    publishing = [asyncio.create_task(publisher.publish(EVENTS, b"k", b"%d" % n)) for n in range(100)]
    await asyncio.sleep(0)
    await publisher.close()
    await publisher.close()
    assert [record.offset for record in await asyncio.gather(*publishing)] == list(range(100))
    with pytest.raises(LogError, match="this publisher is closed"):
        await publisher.publish(EVENTS, b"k", b"late")
    assert values_by_key(kafka, prefix + EVENTS.name)[b"k"] == [b"%d" % n for n in range(100)]


async def test_what_no_broker_took_by_the_time_of_closing_is_told_to_all_who_wait() -> None:
    publisher = Publisher({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "queue.buffering.max.messages": 3}, lambda topic: topic.name)
    publishing = [asyncio.create_task(publisher.publish(EVENTS, b"k%d" % n, b"v")) for n in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(LogError, match=r"3 record\(s\) were not acknowledged"):
        await publisher.close(timeout_s=0.01)
    results = await asyncio.gather(*publishing, return_exceptions=True)
    assert [type(result) for result in results] == [LogError] * 5
    assert "key b'k0', 103 bytes" in str(results[0])
    assert "publish it again" in str(results[0])
    assert "this publisher is closed" in str(results[4])


# Placement, as Java's producers do it: the vectors are from Kafka's own UtilsTest.

VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def murmur2(data: bytes) -> int:
    """Kafka's, as a signed 32-bit number."""
    mask, mixer = 0xFFFFFFFF, 0x5BD1E995
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) - len(data) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * mixer & mask
        word = (word ^ word >> 24) * mixer & mask
        hashed = hashed * mixer & mask ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * mixer & mask
    hashed = (hashed ^ hashed >> 13) * mixer & mask
    hashed ^= hashed >> 15
    return hashed - 2**32 if hashed >= 2**31 else hashed


def java_partition(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


async def test_keys_are_placed_where_a_java_producer_places_them(opened: Open) -> None:
    keys = [*VECTORS, *(b"merchant-%d" % n for n in range(200))]
    async with opened() as publisher:
        published = await asyncio.gather(*(publisher.publish(EVENTS, key, b"v") for key in keys))
    assert {key: record.partition for key, record in zip(keys, published, strict=True)} == {
        key: java_partition(key, PARTITIONS) for key in keys
    }
    assert len({record.partition for record in published}) == PARTITIONS
