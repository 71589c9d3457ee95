"""Reads the log by offset on Kafka: one consumer that belongs to no group, on a thread of its own."""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams.errors import Fatal
from streams.log.records import Record
from streams.log.restore import ASK_PAUSE_S, ASK_TIMEOUT_S, REFUSED
from streams.replay.reading import Stretch
from streams.settings import Settings
from topology.topics import Topic

log_line = structlog.get_logger()

Answer = TypeVar("Answer")

POLL_S = 0.2
SILENCE_S = 10.0
"""After so long without a record or the end, the cluster is asked again from the beginning of the step."""
BYTES_MAX = 8 * 1024 * 1024
"""How much is held at once."""
PASSED_MAX = 20_000
"""How many records are passed in one step, so that steps of several partitions take turns."""
NEAR = 500
"""A record that is no further on is reached by reading on; a jump throws away what was fetched."""


class Interrupted(Exception):
    """The cluster did not answer: ask again."""


class KafkaReader:
    """`reading.Reader` on a cluster."""

    def __init__(self, settings: Settings, kafka: Mapping[str, Any]) -> None:
        self._prefix = settings.topic_prefix
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="replay-reader")
        self._consumer = Consumer(
            {
                **kafka,
                "group.id": f"{settings.topic_prefix}hookline-replay-reader",  # never joined: librdkafka asks for a name
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "queued.max.messages.kbytes": 16 * 1024,
                "fetch.queue.backoff.ms": 10,
            }
        )

    async def bounds(self, topic: Topic, partition: int) -> tuple[int, int]:
        """The first offset that there is, and the last stable one."""
        return await self._asked(topic, lambda: self._bounds(topic, partition))

    async def offset_at(self, topic: Topic, partition: int, time_ms: int) -> int:
        """The first offset of this time or later; the end where there is none."""
        return await self._asked(topic, lambda: self._offset_at(topic, partition, time_ms))

    async def records(self, topic: Topic, partition: int, offsets: Sequence[int]) -> tuple[Mapping[int, Record], int]:
        """These records, as far as they fit."""
        return await self._asked(topic, lambda: self._records(topic, partition, offsets))

    async def stretch(self, topic: Topic, partition: int, start: int, end: int, count: int, key: bytes | None = None) -> Stretch:
        """The next records from `start`."""
        return await self._asked(topic, lambda: self._stretch(topic, partition, start, end, count, key))

    async def close(self) -> None:
        """Let go of the consumer, once its thread is through with what it does."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)

    async def _asked(self, topic: Topic, ask: Callable[[], Answer]) -> Answer:
        """Ask the cluster again while it is away; what it refuses for good ends the process."""
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, ask)
            except (KafkaException, Interrupted) as error:
                cause = error.args[0]
                if isinstance(cause, KafkaError) and (cause.fatal() or cause.code() in REFUSED):
                    raise Fatal(f"reading {topic}: {cause.str()}. Check what this process's user may read") from None
                log_line.warning("reader.asked_again", topic=str(topic), reason=str(cause))
                await asyncio.sleep(ASK_PAUSE_S)

    # On the consumer's thread

    def _place(self, topic: Topic, partition: int, offset: int = 0) -> TopicPartition:
        return TopicPartition(topic.on_cluster(self._prefix), partition, offset)

    def _bounds(self, topic: Topic, partition: int) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(self._place(topic, partition), ASK_TIMEOUT_S)
        return low, high

    def _offset_at(self, topic: Topic, partition: int, time_ms: int) -> int:
        (found,) = self._consumer.offsets_for_times([self._place(topic, partition, time_ms)], ASK_TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return found.offset if found.offset >= 0 else self._bounds(topic, partition)[1]

    def _records(self, topic: Topic, partition: int, offsets: Sequence[int]) -> tuple[Mapping[int, Record], int]:
        """At least one offset is come past, whatever its record's size."""
        low, high = self._bounds(topic, partition)
        wanted = sorted(offset for offset in offsets if low <= offset < high)
        found: dict[int, Record] = {}
        held, position = 0, -NEAR - 1
        for offset in wanted:
            if held >= BYTES_MAX:
                return found, offset
            if position > offset:
                continue  # what was there is gone: a log cleaned behind its low watermark
            if offset - position > NEAR:
                self._consumer.assign([self._place(topic, partition, offset)])
            while position <= offset and position < high:
                record, position = self._next(topic, partition)
                if record is not None and record.offset == offset:
                    found[offset] = record
                    held += len(record.value or b"")
        return found, max(offsets, default=-1) + 1

    def _stretch(self, topic: Topic, partition: int, start: int, end: int, count: int, key: bytes | None) -> Stretch:
        low, high = self._bounds(topic, partition)
        position, end = max(start, low), min(end, high)
        taken: list[Record] = []
        looked_at = held = 0
        if position >= end:
            return Stretch((), max(start, end), 0)
        self._consumer.assign([self._place(topic, partition, position)])
        while position < end and len(taken) < count and looked_at < PASSED_MAX and held < BYTES_MAX:
            record, following = self._next(topic, partition)
            if record is not None and record.offset >= end:
                return Stretch(taken, end, looked_at)
            position = following
            if record is None:
                continue
            looked_at += 1
            if key is None or record.key == key:
                taken.append(record)
                held += len(record.value or b"")
        return Stretch(taken, position, looked_at)

    def _next(self, topic: Topic, partition: int) -> tuple[Record | None, int]:
        """The next record and the place after it; at the end of the log, none and that end."""
        deadline_s = time.monotonic() + SILENCE_S
        while time.monotonic() < deadline_s:
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return _record(topic, message), _offset(message) + 1
            if error.code() == KafkaError._PARTITION_EOF:
                return None, _offset(message)
            raise Interrupted(error)
        raise Interrupted(f"{topic}-{partition} gave no record for {SILENCE_S:g} s")


def _record(topic: Topic, message: Any) -> Record:
    headers = [(name, value if value is not None else b"") for name, value in message.headers() or ()]
    return Record(topic, message.partition(), message.offset(), message.key(), message.value(), headers, message.timestamp()[1])


def _offset(message: Any) -> int:
    offset: int = message.offset()
    return offset
