"""One Kafka transaction at a time: records, changelog and offsets become true together, or not at all."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from streams.errors import Aborted, Fatal, LogError, Unwritable
from streams.log.port import Transaction
from streams.log.records import Write
from topology.topics import Topic

STEP_TIMEOUT_S = 10.0
MESSAGE_BYTES_MAX = 1_048_576
"""What topics take; records are kept below it by `record_bytes_max`."""

RETRY_PAUSE_S = 0.05
INIT_TIMEOUT_S = 60.0
INIT_PATIENCE_S = 0.05
LINGER_MS = 5
NEVER_TAKEN = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD, KafkaError.RECORD_LIST_TOO_LARGE}
)


ANSWER_TIMEOUT_S = 5.0
"""How long records and offsets may take to be taken. A new producer then finds the leader and the coordinator that this one does not."""

FLUSH_S = 0.5
"""How long a transaction's records are waited for before asking whether one was refused: a flush waits on for those behind it."""


def connected(configuration: Mapping[str, Any], patience_s: float) -> Producer:
    """A producer that has fenced its older self, and ended what that left open.

    While the broker still ends it, librdkafka waits half a second before it asks again. A new producer asks at once, so a
    restarted worker is back sooner.
    """
    who = configuration["transactional.id"]
    producer = Producer({**configuration, "log_level": 3})
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        try:
            producer.init_transactions(INIT_PATIENCE_S)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == KafkaError.CONCURRENT_TRANSACTIONS:
                producer = Producer({**configuration, "log_level": 3})
            elif not cause.retriable():
                raise Fatal(f"beginning as transactional producer {who}: {cause.str()}") from error
        else:
            return producer
    raise Fatal(f"beginning as transactional producer {who}: the broker did not answer in {patience_s:.0f} s")


class Transactor:
    """A transactional producer. Every method blocks and belongs on the commit thread."""

    def __init__(
        self,
        kafka: Mapping[str, Any],
        transactional_id: str,
        timeout_ms: int,
        name: Callable[[Topic], str],
        changelog: Topic,
        batch_bytes: int,
    ) -> None:
        """`name` gives a topic's name on the cluster. `timeout_ms` is how long a dead worker's transaction may hold up readers."""
        self._name = name
        self._changelog = name(changelog)
        self._configuration = {
            **kafka,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "retry.backoff.ms": 2,  # the wait between the steps of a commit: 2.6 ms in all, 107 at the default
            "linger.ms": LINGER_MS,
            "batch.size": batch_bytes,  # a topic's limit is for a batch: small records too large together would be refused
            "partitioner": "murmur2_random",  # as Java's producers place keys
            "queue.buffering.max.messages": 1_000_000,
            "message.max.bytes": MESSAGE_BYTES_MAX,
        }
        self._producer = connected(self._configuration, INIT_TIMEOUT_S)
        self._checkpoints: dict[int, int] = {}
        self._refused: list[KafkaError] = []

    def write(self, transaction: Transaction) -> Mapping[int, int]:
        """Commit a transaction; by shard, the offset after its last changelog record.

        1. Begin.
        2. Write the records.
        3. Write the changelog; the last record of each shard tells its offset.
        4. Add the offsets, under the generation of the assignment: a worker that lost its partitions is refused here.
        5. Commit, and ask again until it is decided.
        """
        producer = self._producer
        self._checkpoints = {}
        try:
            producer.begin_transaction()
            self._produce(transaction.writes)
            self._produce_changes(transaction.changes)
            offsets = [
                TopicPartition(self._name(topic), partition, mark.offset, mark.metadata) for topic, partition, mark in transaction.positions
            ]
            self._send_offsets(offsets, transaction.generation)
            self._deliver()
        except KafkaException as error:
            raise self._abort(error) from error
        self._commit()
        return self._checkpoints

    def _send_offsets(self, offsets: list[TopicPartition], generation: Any) -> None:
        """Add the offsets; on a thread of its own, for the call may not return when the group's coordinator has died.

        Its timeout is not kept (librdkafka's issues 5456 and 5511). The thread and the producer are left behind then.
        """
        answer: SimpleQueue[KafkaException | None] = SimpleQueue()

        def send(producer: Producer) -> None:
            try:
                producer.send_offsets_to_transaction(offsets, generation, ANSWER_TIMEOUT_S)
                answer.put(None)
            except KafkaException as error:
                answer.put(error)

        threading.Thread(target=send, args=[self._producer], name="send-offsets", daemon=True).start()
        try:
            error = answer.get(timeout=ANSWER_TIMEOUT_S + 1)
        except Empty:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the group's coordinator did not take the offsets")) from None
        if error is not None:
            raise error

    def probe(self, writes: Sequence[tuple[int, Write]]) -> bool:
        """Whether the broker takes these records; none of them is ever read by anyone."""
        try:
            self._producer.begin_transaction()
            self._produce(writes)
            self._deliver()
        except KafkaException as error:
            why = self._abort(error)
            if isinstance(why, Unwritable):
                return False
            raise why from error
        self._abort_until_done()
        return True

    def _deliver(self) -> None:
        """Wait until the broker has every record of the transaction; a commit that still has to deliver some can hang in librdkafka."""
        left = self._producer.flush(FLUSH_S)
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        while left and not self._refused and time.monotonic() < deadline_s:
            self._producer.poll(0.05)
            left = len(self._producer)
        if self._refused:
            raise KafkaException(self._refused[0])
        if left:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} records were not taken in {ANSWER_TIMEOUT_S:.0f} s"))

    def _produce(self, writes: Sequence[tuple[int, Write]]) -> None:
        produce, name, told = self._producer.produce, self._name, self._remember_refusal
        self._refused.clear()
        for shard, write in writes:
            partition = shard if write.partition is None else write.partition
            while True:
                try:
                    produce(name(write.topic), write.value, write.key, partition, headers=list(write.headers) or None, on_delivery=told)
                    break
                except BufferError:
                    self._producer.poll(0.01)

    def _produce_changes(self, changes: Mapping[int, Mapping[bytes, bytes | None]]) -> None:
        for shard, values in changes.items():
            messages: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in values.items()]
            messages[-1]["callback"] = self._remember_checkpoint
            while messages:
                self._producer.produce_batch(self._changelog, messages, partition=shard)  # it raises nothing: each message tells
                messages = [message for message in messages if "_error" in message]
                for message in messages:
                    error = message.pop("_error")
                    if error.code() != KafkaError._QUEUE_FULL:
                        raise KafkaException(error)
                if messages:
                    self._producer.poll(0.01)

    def _remember_refusal(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._refused.append(error)

    def _remember_checkpoint(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._checkpoints[message.partition()] = message.offset() + 1

    def _commit(self) -> None:
        while True:
            try:
                return self._producer.commit_transaction(STEP_TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise self._abort(error) from error
                time.sleep(RETRY_PAUSE_S)

    def _abort(self, error: KafkaException) -> LogError:
        """End the transaction and tell what its failure means."""
        cause: KafkaError = error.args[0]
        if cause.fatal():
            return Fatal(f"the broker refuses this worker for good: {cause.str()}. The process ends; a restarted one goes on from the log")
        if cause.code() in NEVER_TAKEN:
            self._begin_anew()
            return Unwritable(cause.str())
        if cause.code() == KafkaError._TIMED_OUT:
            self._begin_anew()
        else:
            self._abort_until_done()
        return Aborted(f"{cause.name()}: {cause.str()}")

    def _begin_anew(self) -> None:
        """Leave a producer whose transaction cannot be ended by itself. The broker ends it when the new one says who it is.

        A record that was refused leaves a gap in its producer's sequence, which would fail its next transactions. It would abort
        only after the transaction's time is over (it waits for records that the gap holds back), and that is when the broker
        fences it. And a producer that met a broker before it died may go on waiting for it, though others lead in its place.
        """
        self._producer.purge()
        self._producer = connected(self._configuration, math.inf)

    def _abort_until_done(self) -> None:
        while True:
            try:
                return self._producer.abort_transaction(STEP_TIMEOUT_S)
            except KafkaException as error:
                cause = error.args[0]
                if not cause.retriable():
                    raise Fatal(
                        f"a transaction could not be aborted: {cause.str()}. The process ends; a restarted one goes on from the log"
                    ) from error
                time.sleep(RETRY_PAUSE_S)
