"""Brings shards' stores to the end of their changelog before any record of theirs is handed out."""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # re-exported without saying so

from streams.errors import Fatal, TopologyDrift
from streams.log.offsets import Mark
from streams.log.store import Checkpoint, RocksStore, StoreOptions, open_store

log_line = structlog.get_logger()

ASK_TIMEOUT_S = 10.0
READ_MAX = 10_000
READ_S = 0.05
PROGRESS_EVERY_S = 2.0
ASK_PAUSE_S = 0.2
REFUSED = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})

Answer = TypeVar("Answer")


@dataclass(eq=False)
class Request:
    """One shard to open, and who waits for it."""

    shard: int
    opened: "asyncio.Future[RocksStore]"
    cancelled: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class Restoring:
    """One store on its way to `end`."""

    request: Request
    store: RocksStore
    next_offset: int
    end: int
    restored: int = 0
    changes: dict[bytes, bytes | None] = field(default_factory=dict)


class Restorer:
    """A reader of one agent's changelog, and of what its group has committed, on a thread of its own."""

    def __init__(self, kafka: Mapping[str, Any], group: str, changelog: str, folder: Path, options: StoreOptions) -> None:
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"restore-{group}")
        self._changelog, self._folder, self._options = changelog, folder, options
        self._pending: list[Request] = []
        self._working: asyncio.Task[None] | None = None
        self._consumer = Consumer(
            {
                **kafka,
                "group.id": group,  # never joined: only asked for what it has committed
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "queued.max.messages.kbytes": 16 * 1024,
                "fetch.queue.backoff.ms": 10,  # with a full queue it fetches nothing for so long; a second by default, and it runs dry
            }
        )
        self._admin = AdminClient(dict(kafka))
        self._topic_id = self._ask_topic_id()
        self._consumer.list_topics(changelog, ASK_TIMEOUT_S)  # or its first read waits 750 ms to learn who leads
        self._cluster_id = str(self._consumer.cluster_id(ASK_TIMEOUT_S))

    def _ask_topic_id(self) -> str:
        try:
            described = self._admin.describe_topics(TopicCollection([self._changelog]))[self._changelog].result(ASK_TIMEOUT_S)
        except KafkaException as error:
            raise TopologyDrift(f"asking for {self._changelog}: {error.args[0].str()}. Run `hookline topology apply`") from error
        return str(described.topic_id)

    async def marks(self, partitions: Sequence[tuple[str, int]]) -> list[Mark | None]:
        """What the group has committed, once no open transaction can change it any more."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._marks, partitions)

    async def beginning(self, topic: str, partition: int) -> int:
        """The first offset that there is."""
        place = TopicPartition(topic, partition)
        low, _ = await asyncio.get_running_loop().run_in_executor(
            self._thread, asked_until_answered, f"{topic}-{partition}", lambda: self._consumer.get_watermark_offsets(place, ASK_TIMEOUT_S)
        )
        return int(low)

    async def open(self, shard: int) -> RocksStore:
        """A shard's store at the changelog's end. Whoever is asked for together is restored together."""
        loop = asyncio.get_running_loop()
        request = Request(shard, loop.create_future())
        self._pending.append(request)
        if self._working is None or self._working.done():
            self._working = loop.create_task(self._work())
        try:
            return await asyncio.shield(request.opened)
        except asyncio.CancelledError:
            request.cancelled = True
            await request.done.wait()
            if request.opened.done() and not request.opened.cancelled() and request.opened.exception() is None:
                request.opened.result().close()
            raise

    async def close(self) -> None:
        """Let go of the consumer."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        while self._pending:
            requests, self._pending = self._pending, []
            try:
                await loop.run_in_executor(self._thread, self._restore, requests, loop.call_soon_threadsafe)
            except Exception as error:  # noqa: BLE001 - told to whoever waits
                for request in requests:
                    if not request.opened.done():
                        request.opened.set_exception(error)
            for request in requests:
                request.done.set()
                if not request.opened.done():
                    request.opened.cancel()

    # On the thread

    def _marks(self, partitions: Sequence[tuple[str, int]]) -> list[Mark | None]:
        places = [TopicPartition(topic, number) for topic, number in partitions]
        committed = asked_until_answered("committed offsets", lambda: self._consumer.committed(places, ASK_TIMEOUT_S))
        for place in committed:
            if place.error is not None:
                raise Fatal(f"asking for the committed offset of {place.topic}-{place.partition}: {place.error.str()}")
        return [None if place.offset < 0 else Mark(place.offset, place.metadata or "") for place in committed]

    def _restore(self, requests: Sequence[Request], tell: Callable[..., Any]) -> None:
        """The stable committed offsets were asked for before this; now the end as an uncommitted reader sees it, then up to there.

        A committed reader's end is the last stable offset, and would miss a transaction that is being decided.
        """
        started_s = time.monotonic()
        ends = asked_until_answered(self._changelog, lambda: self._ends([request.shard for request in requests]))
        restoring: dict[int, Restoring] = {}
        for request in requests:
            store, next_offset = open_store(self._folder / str(request.shard), self._options, self._cluster_id, self._topic_id)
            work = Restoring(request, store, next_offset, ends[request.shard])
            restoring[request.shard] = work
        begun = list(restoring.values())
        try:
            self._end_those_done(restoring, tell)
            if restoring:
                self._consumer.assign([TopicPartition(self._changelog, shard, work.next_offset) for shard, work in restoring.items()])
                self._read_until_done(restoring, tell)
                self._consumer.unassign()
        finally:
            for work in restoring.values():
                work.store.close()
        log_line.info(
            "state.restored",
            changelog=self._changelog,
            shards=len(begun),
            records=sum(w.restored for w in begun),
            seconds=round(time.monotonic() - started_s, 3),
        )

    def _ends(self, shards: Sequence[int]) -> dict[int, int]:
        asked = {TopicPartition(self._changelog, shard): OffsetSpec.latest() for shard in shards}  # type: ignore[no-untyped-call]
        answers = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ASK_TIMEOUT_S)
        return {place.partition: answer.result().offset for place, answer in answers.items()}

    def _read_until_done(self, restoring: dict[int, Restoring], tell: Callable[..., Any]) -> None:
        told_s = time.monotonic()
        while restoring:
            first = self._consumer.poll(READ_S)
            messages: list[Any] = [first, *self._consumer.consume(READ_MAX, 0)] if first is not None else []
            for message in messages:
                error = message.error()
                if error is not None and (error.fatal() or error.code() == KafkaError._FATAL):
                    raise Fatal(f"restoring {self._changelog}: {error.str()}")
                work = restoring.get(message.partition())
                if work is None:
                    continue
                if error is None:
                    work.changes[message.key()] = message.value()
                    work.next_offset = message.offset() + 1
                    work.restored += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    work.next_offset = max(work.next_offset, message.offset())
                else:
                    log_line.warning("restore.read_failed", changelog=self._changelog, reason=error.str())
            for work in restoring.values():
                self._store(work)
            self._end_those_done(restoring, tell)
            if restoring and time.monotonic() - told_s > PROGRESS_EVERY_S:
                told_s = time.monotonic()
                for shard, work in restoring.items():
                    log_line.info(
                        "state.restoring", changelog=self._changelog, shard=shard, at=work.next_offset, end=work.end, records=work.restored
                    )

    def _store(self, work: Restoring) -> None:
        if work.changes:
            work.store.apply(work.changes, self.checkpoint(work.next_offset))
            work.changes = {}

    def _end_those_done(self, restoring: dict[int, Restoring], tell: Callable[..., Any]) -> None:
        for shard, work in list(restoring.items()):
            if work.request.cancelled:
                del restoring[shard]
                work.store.close()
            elif work.next_offset >= work.end:
                del restoring[shard]
                tell(_resolve, work.request.opened, work.store)

    def checkpoint(self, next_offset: int) -> Checkpoint:
        """For a store that is at `next_offset` now."""
        return Checkpoint(self._cluster_id, self._topic_id, next_offset, int(time.time() * 1000))


def asked_until_answered(what: str, ask: Callable[[], Answer]) -> Answer:
    """Ask the cluster again while it is away for a passing reason; what it refuses for good ends the process."""
    while True:
        try:
            return ask()
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.fatal() or cause.code() in REFUSED:
                raise Fatal(f"asking for {what}: {cause.str()}. Check what this worker's user may read") from error
            log_line.warning("cluster.asked_again", what=what, reason=cause.str())
            time.sleep(ASK_PAUSE_S)


def _resolve(opened: "asyncio.Future[RocksStore]", store: RocksStore) -> None:
    if opened.done():
        store.close()
    else:
        opened.set_result(store)
