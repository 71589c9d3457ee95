"""Publishes what starts outside Kafka: an idempotent producer with an awaitable for each record, resolved many at a time."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from streams.errors import Fatal, LogError
from streams.log.records import BY_KEY, Headers, Write
from topology.topics import Topic

POLL_S = 0.1
CLOSE_TIMEOUT_S = 10.0
PURGE_TIMEOUT_S = 5.0

USUAL: Mapping[str, Any] = {
    "linger.ms": 2,
    "compression.type": "lz4",
    "delivery.timeout.ms": 30_000,  # whoever publishes waits: after this long it is told, and decides
    "topic.metadata.propagation.max.ms": 5_000,  # how long a topic that nobody knows may still appear
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 64 * 1024,
}
"""What a client's own configuration may change."""

NO_TOPIC = "Make the topic: run `hookline topology apply`"
TOO_LARGE = "It will never be taken: publish less, or a reference to it"
PERHAPS = "It may be written all the same: publish it again with the same id, which its readers recognise"

ADVICE: Mapping[int, str] = {
    KafkaError._UNKNOWN_TOPIC: NO_TOPIC,
    KafkaError._UNKNOWN_PARTITION: NO_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART: NO_TOPIC,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Let this client write to the topic",
    KafkaError.MSG_SIZE_TOO_LARGE: TOO_LARGE,
    KafkaError._MSG_TIMED_OUT: PERHAPS,
    KafkaError._PURGE_INFLIGHT: PERHAPS,
    KafkaError._PURGE_QUEUE: "It was not written: publish it again",
}
"""What to do about a record that was not taken."""


class Published(NamedTuple):
    """Where a record is; its topic is named as on the cluster."""

    topic: str
    partition: int
    offset: int


class _Waiting(NamedTuple):
    """A record on its way, and who waits for it."""

    write: Write
    topic: str
    future: "asyncio.Future[Published]"

    def __str__(self) -> str:
        return f"publishing to {self.topic}, key {self.write.key!r}, {self.write.bytes_at_most} bytes"


_Delivery = tuple[_Waiting, KafkaError | None, Any]


class Publisher:
    """One producer of a process, for its event loop. Records of one key are written in the order they were published."""

    def __init__(self, kafka: Mapping[str, Any], name: Callable[[Topic], str]) -> None:
        """`name` gives a topic's name on the cluster."""
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._producer = Producer(
            {
                **USUAL,
                **kafka,
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": "murmur2_random",  # as Java's producers place keys
            }
        )
        self._deliveries: list[_Delivery] = []  # told by the broker and not yet to those who wait; only the thread's
        self._room = asyncio.Event()  # pulses with every batch of deliveries
        self._queueing = 0  # who waits for room: nobody overtakes them, or a key's order were lost
        self._turn = asyncio.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="publisher", daemon=True)
        self._thread.start()

    async def publish(
        self, topic: Topic, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int | None = None
    ) -> Published:
        """Write one record, and return when every in-sync replica has it. Waits while too many are on their way.

        Its key places it, unless it names a partition.
        """
        write = Write(topic, key, value, headers, partition)
        waiting = _Waiting(write, self._name(topic), self._loop.create_future())
        if write.bytes_at_most > topic.record_bytes_max:  # the broker would refuse it with all others of its batch
            raise LogError(f"{waiting}: the topic takes {topic.record_bytes_max} at most. {TOO_LARGE}")
        if self._queueing or not self._produce(waiting):
            await self._produce_in_turn(waiting)
        return await waiting.future

    def _produce(self, waiting: _Waiting) -> bool:
        """Hand a record to librdkafka; False when its queue is full."""
        if self._closing.is_set():
            raise LogError(f"{waiting}: this publisher is closed. Nothing was written: use one that is open")
        write = waiting.write
        try:
            self._producer.produce(
                waiting.topic,
                write.value,
                write.key,
                BY_KEY if write.partition is None else write.partition,
                headers=list(write.headers) or None,
                on_delivery=partial(self._delivered, waiting),
            )
        except BufferError:
            return False
        except KafkaException as error:
            raise refusal(waiting, error.args[0]) from error
        return True

    async def _produce_in_turn(self, waiting: _Waiting) -> None:
        self._queueing += 1
        try:
            async with self._turn:
                while not self._produce(waiting):
                    await self._room.wait()
        finally:
            self._queueing -= 1

    def _resolve(self, deliveries: list[_Delivery]) -> None:
        for waiting, error, message in deliveries:
            if waiting.future.done():
                continue  # whoever waited has gone
            if error is None:
                waiting.future.set_result(Published(waiting.topic, message.partition(), message.offset()))
            else:
                waiting.future.set_exception(refusal(waiting, error))
        self._room.set()
        self._room = asyncio.Event()

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait for what is on its way. What is left then fails, each for who waits for it, and all of it is told here."""
        if self._closing.is_set():
            return
        self._closing.set()
        await asyncio.to_thread(self._thread.join)
        left = await asyncio.to_thread(self._flush, timeout_s)
        if left:
            raise LogError(
                f"closing the publisher: {left} record(s) were not acknowledged within {timeout_s:g} s. "
                f"Some may be written all the same: look at the brokers, and publish them again with the same ids"
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    # On the thread

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(POLL_S)
            self._tell()

    def _delivered(self, waiting: _Waiting, error: KafkaError | None, message: Any) -> None:
        self._deliveries.append((waiting, error, message))

    def _tell(self) -> None:
        """One call to the event loop for all that a poll brought: a call for each would cost more than the record."""
        if self._deliveries:
            deliveries, self._deliveries = self._deliveries, []
            self._loop.call_soon_threadsafe(self._resolve, deliveries)

    def _flush(self, timeout_s: float) -> int:
        """How many were still on their way in the end; those are given up."""
        left = self._producer.flush(timeout_s)
        if left:
            self._producer.purge()
            self._producer.flush(PURGE_TIMEOUT_S)
        self._tell()
        return left


def refusal(waiting: _Waiting, error: KafkaError) -> LogError:
    """What became of a record, and what to do about it."""
    if error.fatal():
        return Fatal(f"{waiting}: {error.str()}. This producer can write no more: the process ends, and a restarted one goes on")
    return LogError(f"{waiting}: {error.str()}. {ADVICE.get(error.code(), 'Look at the brokers, and publish it again')}")
