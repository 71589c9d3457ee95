"""A compacted topic as a table: read whole before it is relied on, and kept current afterwards."""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # re-exported without saying so

from streams.errors import Fatal, MalformedRecord, TopologyDrift
from streams.log.restore import ASK_PAUSE_S, ASK_TIMEOUT_S, REFUSED
from streams.settings import Settings
from topology.topics import Topic

log_line = structlog.get_logger()

READ_MAX = 200  # applied in one turn of the event loop, which others wait for
POLL_S = 0.2  # the longest that closing waits for; a record that comes is handed on at once
POSITION_LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})

Answer = TypeVar("Answer")


class Row(NamedTuple):
    """One record, and its place."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Batch(NamedTuple):
    """Records in the order of their partitions, and the offsets at which nothing more was there."""

    rows: Sequence[Row]
    ends: Sequence[tuple[int, int]]


class Table:
    """All partitions of a topic, from their beginning, for one reader that keeps what it needs of them.

    It belongs to no group and commits nothing, so every process has all of it. Every call to the consumer is a job on its one
    thread; `apply` is called on the event loop alone, in the order of each partition, so that a later record of a key comes later.
    """

    def __init__(
        self, topic: Topic, settings: Settings, kafka: Mapping[str, Any], apply: Callable[[bytes | None, bytes | None], None]
    ) -> None:
        self._topic = topic.on_cluster(settings.topic_prefix)
        self._kafka = dict(kafka)
        self._apply = apply
        self._next_offsets: dict[int, int] = {}
        self._reading: asyncio.Future[Batch] | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"table-{topic}")
        self._consumer = Consumer(
            {
                **kafka,
                "group.id": f"{settings.topic_prefix}hookline-tables",  # never joined: librdkafka asks for a name
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # a position that is gone means another topic: what was applied may be gone too
                "isolation.level": "read_committed",
                "enable.partition.eof": True,  # tells where the log ends, behind the markers of transactions
                "fetch.wait.max.ms": 500,
                "queued.max.messages.kbytes": 16 * 1024,
                "fetch.queue.backoff.ms": 10,  # with a full queue it fetches nothing for so long; a second by default, and it runs dry
            }
        )

    async def load(self) -> None:
        """Apply everything that is in the topic now; called again, everything that has come since.

        The end is that of an uncommitted reader: what an open transaction holds back is waited for until it is decided, or a record
        that was acknowledged before this call could be missing after it.
        """
        started_s = time.monotonic()
        if not self._next_offsets:
            self._next_offsets = dict.fromkeys(await self._asked("its partitions", self._assign_all), 0)
        ends = await self._asked("where it ends", self._ends)
        records = 0
        while any(self._next_offsets[partition] < end for partition, end in ends.items()):
            records += await self._apply_next()
        log_line.info("table.loaded", topic=self._topic, records=records, seconds=round(time.monotonic() - started_s, 3))

    async def follow(self) -> None:
        """Apply what comes after `load`, until cancelled."""
        if not self._next_offsets:
            raise RuntimeError(f"{self._topic} is followed before it was loaded: call load first")
        while True:
            await self._apply_next()

    async def close(self) -> None:
        """Let go of the consumer, once its thread is through with what it does."""
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._reading.exception()  # nobody else will ask for it
        await self._job(self._consumer.close)
        self._thread.shutdown(wait=False)

    async def _apply_next(self) -> int:
        """Apply one batch. What was read when this is cancelled is kept for the next call."""
        if self._reading is None:
            self._reading = self._job(self._read)
        batch = await asyncio.shield(self._reading)
        self._reading = None
        for row in batch.rows:
            self._apply_row(row)
        for partition, offset in batch.ends:
            self._next_offsets[partition] = max(self._next_offsets[partition], offset)
        return len(batch.rows)

    def _apply_row(self, row: Row) -> None:
        try:
            self._apply(row.key, row.value)
        except MalformedRecord as error:
            log_line.error("table.record_refused", where=f"{self._topic}-{row.partition}@{row.offset}", reason=str(error))
        self._next_offsets[row.partition] = row.offset + 1

    async def _asked(self, what: str, ask: Callable[[], Answer]) -> Answer:
        """Ask the cluster again while it is away; the pauses are here and not on the thread, so that a cancelled load ends."""
        while True:
            try:
                return await self._job(ask)
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                self._end_if_refused(cause)
                log_line.warning("table.asked_again", topic=self._topic, what=what, reason=cause.str())
                await asyncio.sleep(ASK_PAUSE_S)

    def _job(self, call: Callable[[], Answer]) -> "asyncio.Future[Answer]":
        return asyncio.get_running_loop().run_in_executor(self._thread, call)

    # On the consumer's thread

    def _assign_all(self) -> list[int]:
        found = self._consumer.list_topics(self._topic, ASK_TIMEOUT_S).topics[self._topic]
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopologyDrift(f"reading {self._topic}: there is no such topic. Run `hookline topology apply`")
            raise KafkaException(found.error)
        self._consumer.assign([TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in found.partitions])
        return list(found.partitions)

    def _ends(self) -> dict[int, int]:
        """A client of its own for the one question: the consumer would name the last stable offset."""
        asked = {TopicPartition(self._topic, number): OffsetSpec.latest() for number in self._next_offsets}  # type: ignore[no-untyped-call]
        admin = AdminClient(self._kafka)
        answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ASK_TIMEOUT_S)
        return {place.partition: answer.result().offset for place, answer in answers.items()}

    def _read(self) -> Batch:
        """Wait for the first record only: `consume` would wait out its time to fill the batch."""
        first = self._consumer.poll(POLL_S)
        messages: list[Any] = [] if first is None else [first, *self._consumer.consume(READ_MAX - 1, 0)]
        ends: list[tuple[int, int]] = []
        rows = [
            Row(message.partition(), message.offset(), message.key(), message.value())
            for message in messages
            if message.error() is None or self._check(message, ends)
        ]
        return Batch(rows, ends)

    def _check(self, message: Any, ends: list[tuple[int, int]]) -> bool:
        """Judge an error that came in place of a record. Never a record."""
        error: KafkaError = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            ends.append((message.partition(), message.offset()))
            return False
        if error.code() in POSITION_LOST:
            raise Fatal(
                f"reading {self._topic}-{message.partition()}@{message.offset()}: {error.str()}. The topic was made anew or its records "
                "were deleted. The process ends; a restarted one reads it whole"
            )
        self._end_if_refused(error)
        log_line.warning("table.read_failed", topic=self._topic, reason=error.str())
        return False

    def _end_if_refused(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL or error.code() in REFUSED:
            raise Fatal(f"reading {self._topic}: {error.str()}. Check what this process's user may read")
