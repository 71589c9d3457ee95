"""Reads topics for a person who waits: whole, up to where they end now, or on from a place as records come."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # re-exported without saying so
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from streams.commands import cluster
from streams.commands.terminal import aside
from streams.errors import BrokerUnavailable
from streams.log.records import Record
from streams.settings import settings
from topology import reach
from topology.topics import Topic

READ_MAX = 1_000
POLL_S = 0.2
SILENT_MAX_S = 30.0


def read_whole(topic: Topic, take: Callable[[Record], None], since_ms: int | None = None) -> dict[int, int]:
    """Hand over every committed record that is in a topic now, in the order of each partition, and tell where to read on.

    The end is that of an uncommitted reader: what an open transaction holds back is waited for, or a record that somebody was
    already told of could be missing. `since_ms` leaves out older records.
    """
    ends = ends_of(topic)
    return _read_between(topic, take, _starts(topic, list(ends), since_ms), ends)


def read_on(topic: Topic, starts: Mapping[int, int], take: Callable[[Record], None]) -> dict[int, int]:
    """Likewise, from a place in each of some partitions on."""
    ends = ends_of(topic)
    return _read_between(topic, take, dict(starts), {number: ends[number] for number in starts})


def ends_of(topic: Topic) -> dict[int, int]:
    """Where each partition ends now, for an uncommitted reader."""
    return _offsets(topic, cluster.partitions_of(topic), OffsetSpec.latest())  # type: ignore[no-untyped-call]


def _read_between(topic: Topic, take: Callable[[Record], None], starts: dict[int, int], ends: dict[int, int]) -> dict[int, int]:
    left = {number for number in starts if starts[number] < ends[number]}
    with _consuming(topic, {number: starts[number] for number in left}) as consumer, _telling(topic, starts, ends) as tell:
        at = dict(starts)
        heard_s = time.monotonic()
        while left:
            for message in _read(consumer):
                place = message.partition()
                if message.error() is None:
                    take(_record(topic, message))
                    at[place] = message.offset() + 1
                else:
                    at[place] = max(at[place], _end_of_partition(topic, message))
                heard_s = time.monotonic()
            left = {number for number in left if at[number] < ends[number]}
            tell(at)
            if time.monotonic() - heard_s > SILENT_MAX_S:
                raise BrokerUnavailable(
                    f"reading {cluster.name(topic)}: nothing came for {SILENT_MAX_S:g} s. Look at the brokers, or at `hookline broker "
                    "status`"
                )
    return at


def read_one(topic: Topic, partition: int, offset: int) -> Record | None:
    """The record at a place; None: it is there no more."""
    with _consuming(topic, {partition: offset}) as consumer:
        deadline_s = time.monotonic() + SILENT_MAX_S
        while time.monotonic() < deadline_s:
            for message in _read(consumer):
                if message.error() is None:
                    return _record(topic, message) if message.offset() == offset else None
                _end_of_partition(topic, message)
                return None
    raise BrokerUnavailable(f"reading {cluster.name(topic)}-{partition}@{offset}: no answer for {SILENT_MAX_S:g} s. Look at the brokers")


def follow(topic: Topic, starts: Mapping[int, int]) -> Iterator[Record | None]:
    """Records as they come, from a place in each partition on; None when there is none just now."""
    with _consuming(topic, starts) as consumer:
        while True:
            for message in _read(consumer):
                if message.error() is None:
                    yield _record(topic, message)
                else:
                    _end_of_partition(topic, message)
            yield None


@contextmanager
def _consuming(topic: Topic, starts: Mapping[int, int]) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            **cluster.kafka(),
            "group.id": f"{settings().topic_prefix}hookline-commands",  # never joined: librdkafka asks for a name
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # a place whose records have expired: on with the first that is left
            "isolation.level": "read_committed",
            "enable.partition.eof": True,  # tells where the log ends, behind the markers of transactions
            "fetch.queue.backoff.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition(cluster.name(topic), number, offset) for number, offset in starts.items()])
        yield consumer
    finally:
        consumer.close()


def _read(consumer: Consumer) -> list[Any]:
    """Wait for the first message only: `consume` would wait out its time to fill the batch."""
    first = consumer.poll(POLL_S)
    return [] if first is None else [first, *consumer.consume(READ_MAX - 1, 0)]


def _record(topic: Topic, message: Any) -> Record:
    _, timestamp_ms = message.timestamp()
    return Record(topic, message.partition(), message.offset(), message.key(), message.value(), message.headers() or (), timestamp_ms)


def _end_of_partition(topic: Topic, message: Any) -> int:
    """Where a partition ends; any other error is told, unless the client mends it by itself."""
    error: KafkaError = message.error()
    if error.code() == KafkaError._PARTITION_EOF:
        return int(message.offset())
    if error.fatal() or not error.retriable():
        raise cluster.unavailable(f"reading {cluster.name(topic)}", KafkaException(error))
    return 0


def _starts(topic: Topic, partitions: list[int], since_ms: int | None) -> dict[int, int]:
    earliest = _offsets(topic, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    if since_ms is None:
        return earliest
    later = _offsets(topic, partitions, OffsetSpec.for_timestamp(since_ms))
    ends = _offsets(topic, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    return {number: ends[number] if offset < 0 else offset for number, offset in later.items()}  # below 0: nothing is that young


def _offsets(topic: Topic, partitions: list[int], spec: Any) -> dict[int, int]:
    asked = {TopicPartition(cluster.name(topic), number): spec for number in partitions}
    admin = reach.admin_client(settings())
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=cluster.ASK_TIMEOUT_S)
    try:
        return {place.partition: answer.result().offset for place, answer in answers.items()}
    except KafkaException as error:
        raise cluster.unavailable(f"asking {cluster.name(topic)} for its offsets", error) from error


@contextmanager
def _telling(topic: Topic, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Callable[[Mapping[int, int]], None]]:
    """A bar on a terminal, gone when it is through."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=aside, transient=True, disable=not aside.is_terminal) as progress:
        bar = progress.add_task(f"reading {cluster.name(topic)}", total=sum(max(0, ends[number] - starts[number]) for number in starts))
        yield lambda at: progress.update(bar, completed=sum(min(at[n], ends[n]) - starts[n] for n in starts if starts[n] < ends[n]))
