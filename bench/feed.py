"""Fills topics with records to measure on."""

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Producer

from bench.ground import PARTITIONS, BenchmarkError, Ground

VALUE_BYTES = 300
BATCH = 2_000
FLUSH_S = 120


def key_of(number: int) -> bytes:
    """No two records have the same key, so that none of their state changes is folded into another's."""
    return b"evt_%012d" % number


def value_of(number: int) -> bytes:
    return (b"%d " % number).ljust(VALUE_BYTES, b"v")


def fill(
    ground: Ground, topic: str, numbers: Iterable[int], key: Callable[[int], bytes] = key_of, value: Callable[[int], bytes] = value_of
) -> None:
    """Write records, number n to partition n modulo their count, and wait until the broker has them all."""
    producer = Producer(
        {"bootstrap.servers": ground.bootstrap, "enable.idempotence": True, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    waiting: list[list[dict[str, Any]]] = [[] for _ in range(PARTITIONS)]
    for number in numbers:
        batch = waiting[number % PARTITIONS]
        batch.append({"key": key(number), "value": value(number)})
        if len(batch) == BATCH:
            produce(producer, topic, number % PARTITIONS, batch)
    for partition, batch in enumerate(waiting):
        produce(producer, topic, partition, batch)
    if left := producer.flush(FLUSH_S):
        raise BenchmarkError(f"filling {topic}: {left} records were not taken in {FLUSH_S} s. Is the broker at {ground.bootstrap} well?")


def produce(producer: Producer, topic: str, partition: int, batch: list[dict[str, Any]]) -> None:
    """Produce a batch, waiting for room in the producer's queue, and empty it."""
    while batch:
        taken = producer.produce_batch(topic, batch, partition=partition)
        del batch[:taken]
        producer.poll(0.01 if batch else 0)
