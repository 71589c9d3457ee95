"""Where records come from: a librdkafka consumer on a thread of its own, and the rebalances that it is told of."""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams.errors import Fatal, PositionLost
from streams.log.port import Partition
from streams.log.records import Record
from topology.topics import Topic

log_line = structlog.get_logger()

READ_MAX = 500
POLL_S = 0.05
SEEK_TRIES = 400
SEEK_PAUSE_S = 0.005
REVOKE_WAIT_S = 1.5
ASK_TIMEOUT_S = 10.0


class Batch(NamedTuple):
    """Records in the order they were read, and the assignment they were read under."""

    epoch: int
    records: Sequence[Record]
    ends: Sequence[tuple[Topic, int, int]] = ()  # topic, partition, and the offset at which nothing more was there


class Listener(Protocol):
    """Who is told of rebalances; on the event loop."""

    async def assigned(self, epoch: int, generation: Any, numbers: Sequence[int]) -> None:
        """These shards are ours, under this generation."""

    async def revoked(self) -> None:
        """A moment to commit what is finished."""

    def lost(self) -> None:
        """They were given away without asking."""


class Source:
    """One member of an agent's group.

    Every call to the consumer is a job on its one thread, since some of its calls hang when a rebalance callback runs beside them.
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        group: str,
        instance: str,
        topics: Sequence[Topic],
        name: Callable[[Topic], str],
        session: Mapping[str, int],
    ) -> None:
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"source-{group}")
        self._names = {topic: name(topic) for topic in topics}
        self._topics = {name: topic for topic, name in self._names.items()}
        self._epoch = 0
        self._paused: set[tuple[str, int]] = set()
        self._failure: Exception | None = None
        self._consumer = Consumer(
            {
                **kafka,
                **session,
                "group.id": group,
                "group.instance.id": instance,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # positions are always given; one that retention has deleted must be told to a person
                "isolation.level": "read_committed",
                "enable.partition.eof": True,  # tells where the log ends, behind the markers of transactions
                "partition.assignment.strategy": "range",  # the one that puts partition p of every topic on the same worker
                "fetch.wait.max.ms": 50,
                "queued.max.messages.kbytes": 16 * 1024,
                "fetch.queue.backoff.ms": 10,  # with a full queue it fetches nothing for so long; a second by default, and it runs dry
            }
        )
        for known in self._topics:
            self._consumer.list_topics(known, ASK_TIMEOUT_S)  # or the first read waits 750 ms to learn who leads

    async def start(self, listener: Listener) -> None:
        """Join the group; the listener hears of the first assignment soon."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        await self._job(self._subscribe)

    async def read(self) -> Batch:
        """The next records, or none after a moment."""
        batch: Batch = await self._job(self._read)
        return batch

    async def close(self) -> None:
        """Stop reading. A static member keeps its place for as long as its session lasts."""
        await self._job(self._consumer.close)
        self._thread.shutdown(wait=False)

    def read_from(self, epoch: int, positions: Mapping[Partition, int], paused: Collection[Partition]) -> None:
        """Read these from now on, and nothing else, unless `epoch` is over."""
        places = [self._place(partition, offset) for partition, offset in positions.items()]
        self._submit(self._read_from, epoch, places, [self._place(partition, None) for partition in paused])

    def resume(self, epoch: int, partition: Partition, offset: int | None) -> None:
        """Read on from where it was paused; `offset` where nothing was read of it yet."""
        self._submit(self._resume, epoch, self._place(partition, offset), offset is not None)

    def pause(self, epoch: int, partition: Partition) -> None:
        """Read no more of it for now."""
        self._submit(self._pause, epoch, self._place(partition, None))

    def _place(self, partition: Partition, offset: int | None) -> TopicPartition:
        topic, number = partition
        return TopicPartition(self._names[topic], number) if offset is None else TopicPartition(self._names[topic], number, offset)

    def _submit(self, call: Callable[..., None], *arguments: Any) -> None:
        """A job that nobody waits for: its failure ends the process at the next read."""

        def run() -> None:
            try:
                call(*arguments)
            except Exception as error:  # noqa: BLE001 - a partition that is silently not read is the worst that can happen
                self._failure = Fatal(f"{call.__name__.strip('_').replace('_', ' ')} {arguments[1:]}: {error}")

        self._thread.submit(run)

    async def _job(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._thread, call, *arguments)

    # On the consumer's thread

    def _subscribe(self) -> None:
        self._consumer.subscribe(list(self._topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _read(self) -> Batch:
        """Wait for the first record only: `consume` would wait out its time to fill the batch."""
        if self._failure is not None:
            raise self._failure
        epoch = self._epoch
        first = self._consumer.poll(POLL_S)
        messages: list[Any] = [] if first is None else [first, *self._consumer.consume(READ_MAX, 0)]
        for message in messages:
            self._end_if_fatal(message.error())  # told once only, perhaps together with a rebalance
        if epoch != self._epoch:
            return Batch(self._epoch, ())  # read across a rebalance: positions are given anew, so it is read again
        topics = self._topics
        ends: list[tuple[Topic, int, int]] = []
        records = [
            Record(topics[m.topic()], m.partition(), m.offset(), m.key(), m.value(), m.headers() or (), m.timestamp()[1])
            for m in messages
            if m.error() is None or self._check(m, ends)
        ]
        return Batch(epoch, records, ends)

    def _end_if_fatal(self, error: KafkaError | None) -> None:
        if error is not None and (error.fatal() or error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)):
            raise Fatal(f"the group refuses this worker: {error.str()}. The process ends; a restarted one goes on from the log")

    def _check(self, message: Any, ends: list[tuple[Topic, int, int]]) -> bool:
        """Judge an error that came in place of a record. Never a record."""
        error: KafkaError = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            ends.append((self._topics[message.topic()], message.partition(), message.offset()))
            return False
        where = f"{message.topic()}-{message.partition()}@{message.offset()}" if message.topic() else "the cluster"
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise PositionLost(
                f"reading {where}: {error.str()}. Records were deleted before they were read, or the topic was made anew. "
                f"Decide where to read on: `hookline offsets reset --help`"
            )
        log_line.warning("read.failed", where=where, reason=error.str())
        return False

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Take the partitions and read nothing yet: the listener knows where each is to go on, and gives explicit offsets.

        Any other start (the beginning, say, and a seek later) is looked up in the background and may overtake the seek.
        """
        self._epoch += 1
        numbers = sorted({p.partition for p in partitions})
        if len(partitions) != len(numbers) * len(self._topics):
            self._failure = Fatal(
                f"partitions of {', '.join(sorted(self._topics))} are split over workers: they must have the same count. "
                "Run `hookline topology verify`"
            )
        consumer.assign([])
        # Asked for at commit time it would already name the next generation while this worker still holds the last one's partitions.
        generation = consumer.consumer_group_metadata()
        asyncio.run_coroutine_threadsafe(self._listener.assigned(self._epoch, generation, numbers), self._loop)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._epoch += 1
        self._clear_pauses()
        try:
            asyncio.run_coroutine_threadsafe(self._listener.revoked(), self._loop).result(REVOKE_WAIT_S)
        except concurrent.futures.TimeoutError:
            log_line.warning("revoke.slow", waited_s=REVOKE_WAIT_S)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._epoch += 1
        self._clear_pauses()
        self._loop.call_soon_threadsafe(self._listener.lost)

    def _clear_pauses(self) -> None:
        """A pause outlives its assignment: a partition that came back would never be read again."""
        if self._paused:
            self._consumer.resume([TopicPartition(topic, partition) for topic, partition in self._paused])
            self._paused.clear()

    def _read_from(self, epoch: int, places: list[TopicPartition], paused: list[TopicPartition]) -> None:
        if epoch == self._epoch:
            self._clear_pauses()  # one may have come between the assignment and its positions
            self._consumer.assign(places)
            if paused:
                self._pause_all(paused)

    def _resume(self, epoch: int, place: TopicPartition, seek: bool) -> None:
        if epoch != self._epoch:
            return
        self._consumer.resume([place])
        self._paused.discard((place.topic, place.partition))
        if seek:
            self._seek(place)  # to where it is: without it, the first fetch after a resume is a second late

    def _seek(self, place: TopicPartition) -> None:
        """A partition just assigned is not ready for it at once."""
        for left in reversed(range(SEEK_TRIES)):
            try:
                return self._consumer.seek(place)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE or left == 0:
                    raise
                time.sleep(SEEK_PAUSE_S)
        return None

    def _pause(self, epoch: int, place: TopicPartition) -> None:
        if epoch == self._epoch:
            self._pause_all([place])

    def _pause_all(self, places: list[TopicPartition]) -> None:
        self._consumer.pause(places)
        self._paused.update((place.topic, place.partition) for place in places)
