"""The cases in which records are lost or doubled elsewhere, through the real source, transactions and stores on a real broker."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from rocksdict import Cache

from streams.app import limits
from streams.errors import PositionLost
from streams.log.agent import Agent
from streams.log.kafka import Connection, KafkaLog
from streams.log.machine import Machine
from streams.log.offsets import Mark, unpack
from streams.log.records import Outcome, Record, Work, Write
from streams.log.state import State
from streams.settings import Settings
from tests.conftest import SettingsFor
from tests.log.clients import create, read_to_end
from tests.log.one_worker import DrivenWorld, agent
from tests.pipelines import IN, OUT, REFUSED
from topology.topics import Topic

pytestmark = pytest.mark.kafka

SMALL = Topic("small", "Takes less than the machine allows.", "key", None, record_bytes_max=2_000)
PATIENCE_S = 30.0


def plan_work(record: Record, state: State, now_ms: int) -> list[Work[Any]]:
    return [Work((record.key, record.value))]


async def perform_work(task: tuple[bytes, bytes], world: DrivenWorld) -> bytes:
    await world.work(task[1])
    return task[1]


def conclude_work(task: tuple[bytes, bytes], result: bytes, state: State, now_ms: int) -> Outcome:
    return Outcome([Write(OUT, task[0], result)])


WORKING = agent(plan=plan_work, perform=perform_work, conclude=conclude_work, writes=[OUT, SMALL, REFUSED])
COUNTED = replace(WORKING, plan=lambda record, state, now_ms: Outcome([Write(OUT, record.key, record.value)]), perform=None, conclude=None)


@dataclass
class Ground:
    """One partition of everything on the shared broker, under a prefix of its own."""

    settings: Settings
    folder: Path
    admin: AdminClient
    kafka: dict[str, Any]
    world: DrivenWorld = field(default_factory=DrivenWorld)
    working: "asyncio.Task[None] | None" = None
    note_ends_every_s: float = 1e9

    def connection(self) -> Connection:
        return Connection(self.settings, self.kafka, "w1", self.folder, Cache(8 * 1024 * 1024))

    def name(self, topic: Topic) -> str:
        return self.settings.topic_prefix + topic.name

    def send(self, values: Sequence[bytes]) -> None:
        producer = Producer(self.kafka)
        for value in values:
            producer.produce(self.name(IN), value, b"k", 0)
        assert producer.flush(PATIENCE_S) == 0

    def send_in_transaction(self, producer: Producer, values: Sequence[bytes], commit: bool = True) -> None:
        """Its marker takes the offset after its records."""
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name(IN), value, b"k", 0)
        producer.flush(PATIENCE_S)
        if commit:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)

    def values(self, topic: Topic) -> list[bytes]:
        return [value for _, value in read_to_end(self.kafka, self.name(topic), 1)]

    def keys(self, topic: Topic) -> list[bytes]:
        return [key for key, _ in read_to_end(self.kafka, self.name(topic), 1)]

    def mark(self, of: Agent = WORKING) -> Mark:
        """What the group has committed, as any other client is told."""
        consumer = Consumer({**self.kafka, "group.id": f"{self.settings.topic_prefix}hookline-{of.name}"})
        (place,) = consumer.committed([TopicPartition(self.name(IN), 0)], PATIENCE_S)
        consumer.close()
        return Mark(place.offset, place.metadata or "")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(holds):
                assert self.working is not None
                if self.working.done():
                    self.working.result()
                await asyncio.sleep(0.02)

    async def until_marked(self, offset: int, unfinished: set[int] | None = None) -> None:
        """Wait for a commit, and see that it is this one."""
        expected = frozenset(unfinished or ())
        await self.until(lambda: (mark := self.mark()).offset == offset and unpack(mark)[1] == expected)


@pytest.fixture
async def ground(settings_for: SettingsFor, prefix: str, tmp_path: Path) -> Ground:
    settings = settings_for(prefix, session_timeout_ms=6_000)
    kafka: dict[str, Any] = {**settings.kafka(), "log_level": 0}
    admin = AdminClient(kafka)
    create(admin, prefix, 1, IN, OUT, SMALL, REFUSED, WORKING.changelog)
    return Ground(settings, tmp_path, admin, kafka)


@asynccontextmanager
async def running(ground: Ground, of: Agent) -> AsyncIterator["asyncio.Task[None]"]:
    """An agent at work in this process, less its Faust channel; it stops where it stands when the test is through."""
    connection = ground.connection()
    log = await asyncio.to_thread(KafkaLog, of, connection)
    bounds = replace(limits(ground.settings), keep_every_s=0.1, note_ends_every_s=ground.note_ends_every_s)
    machine = Machine(of, ground.world, log, connection.writer(), bounds)

    async def read() -> None:
        while True:
            batch = await log.read()
            machine.offer(batch.epoch, batch.records, batch.ends)

    await log.start(machine)
    working, reading, keeping = (asyncio.create_task(work) for work in (machine.run(), read(), machine.keep()))
    ground.working = working
    try:
        yield working
    finally:
        reading.cancel()
        keeping.cancel()
        await asyncio.wait([reading, keeping])
        await machine.stop(drain_s=0)
        working.cancel()
        await asyncio.wait([working])
        await log.stop_reading()
        await log.close()


# Offsets


async def test_31_in_flight_with_32_done_commits_31(ground: Ground) -> None:
    names = [b"%d" % number for number in range(33)]
    ground.send(names)
    async with running(ground, WORKING):
        ground.world.release(*(name for name in names if name != b"31"))
        await ground.until_marked(31, {31})
        assert set(ground.values(OUT)) == set(names) - {b"31"}
        ground.world.release(b"31")
        await ground.until_marked(33)
        assert sorted(ground.values(OUT)) == sorted(names)


async def test_with_the_first_five_in_flight_the_start_stays_committed(ground: Ground) -> None:
    names = [b"%d" % number for number in range(100)]
    ground.send(names)
    async with running(ground, WORKING):
        ground.world.release(*names[5:])
        await ground.until(lambda: len(ground.values(OUT)) == 95)
        await ground.until_marked(0, {0, 1, 2, 3, 4})
        ground.world.release(*names[:5])
        await ground.until_marked(100)
        assert sorted(ground.values(OUT)) == sorted(names)


async def test_a_restarted_worker_does_what_was_unfinished_and_skips_what_was_done(ground: Ground) -> None:
    names = [b"%d" % number for number in range(20)]
    ground.send(names)
    async with running(ground, WORKING):
        ground.world.release(*(name for name in names if name not in (b"3", b"17")))
        await ground.until_marked(3, {3, 17})
    ground.world = DrivenWorld()
    ground.world.release()
    async with running(ground, WORKING):
        await ground.until_marked(20)
        assert dict(ground.world.begun) == {b"3": 1, b"17": 1}
        assert sorted(ground.values(OUT)) == sorted(names)


async def test_a_transaction_marker_between_offsets_swallows_nothing(ground: Ground) -> None:
    """Offsets: a 0, b 1, marker 2, aborted 3, its marker 4, c 5, marker 6, d 7, e 8, marker 9."""
    producer = Producer({**ground.kafka, "transactional.id": ground.settings.topic_prefix + "feeder"})
    producer.init_transactions(PATIENCE_S)
    ground.send_in_transaction(producer, [b"a", b"b"])
    ground.send_in_transaction(producer, [b"ghost"], commit=False)
    ground.send_in_transaction(producer, [b"c"])
    ground.send_in_transaction(producer, [b"d", b"e"])
    async with running(ground, WORKING):
        ground.world.release(b"a", b"d", b"e")
        await ground.until_marked(1, {1, 5})
        assert sorted(ground.values(OUT)) == [b"a", b"d", b"e"]
        ground.world.release(b"b")
        await ground.until_marked(5, {5})
        ground.world.release(b"c")
        await ground.until_marked(9)
        ground.send_in_transaction(producer, [b"f"])
        ground.world.release()
        await ground.until_marked(11)
        assert sorted(ground.values(OUT)) == [b"a", b"b", b"c", b"d", b"e", b"f"]


async def test_a_committed_offset_that_is_gone_while_the_state_is_there_stops_the_agent(ground: Ground) -> None:
    """A group of another name has no offsets, and its state says that it has been read before."""
    ground.send([b"once"])
    async with running(ground, COUNTED):
        await ground.until_marked(1)
    idle_for_a_week = replace(COUNTED, name="renamed")
    async with running(ground, idle_for_a_week) as task:
        await asyncio.wait([task], timeout=PATIENCE_S)
        assert task.done()
        assert isinstance(task.exception(), PositionLost)
        assert "offsets reset" in str(task.exception())
    assert ground.values(OUT) == [b"once"]


async def test_the_end_of_an_idle_log_is_committed_and_outlives_what_retention_deletes(ground: Ground) -> None:
    """Behind the last record lies a transaction's marker: a position before it is gone once retention has passed the marker."""
    producer = Producer({**ground.kafka, "transactional.id": f"{ground.settings.topic_prefix}someone"})
    producer.init_transactions(PATIENCE_S)
    ground.send_in_transaction(producer, [b"a", b"b"])
    ground.note_ends_every_s = 0.2
    async with running(ground, COUNTED):
        await ground.until_marked(3)
    place = TopicPartition(ground.name(IN), 0, -1)  # up to its end
    deleted = ground.admin.delete_records([place])[place].result(PATIENCE_S)
    assert deleted.low_watermark == 3
    async with running(ground, COUNTED):
        ground.send_in_transaction(producer, [b"c"])
        await ground.until_marked(5)
    assert ground.values(OUT) == [b"a", b"b", b"c"]


# What the broker does not take


def sized(topic: Topic, size_of: Callable[[int], int]) -> Agent:
    """Writes as many bytes for each record as its number asks for."""

    def plan(record: Record, state: State, now_ms: int) -> Outcome:
        return Outcome([Write(topic, record.value, os.urandom(size_of(int(record.value or b"0"))))], [(record.value or b"", b"done")])

    return replace(COUNTED, plan=plan)


async def test_a_record_too_large_for_its_topic_is_dead_lettered_by_reference_and_the_rest_is_committed(ground: Ground) -> None:
    ground.send([b"%d" % number for number in range(12)])
    async with running(ground, sized(SMALL, lambda number: 5_000 if number == 7 else 10)):
        await ground.until_marked(12)
        assert ground.keys(SMALL) == [b"%d" % number for number in range(12) if number != 7]
        assert ground.keys(REFUSED) == [b"in-0@7"]
        assert {b"%d" % number for number in range(12) if number != 7} <= set(ground.keys(WORKING.changelog))


async def test_records_that_are_too_large_only_together_are_all_committed(ground: Ground) -> None:
    """A topic's limit is for a batch: many small records in one are no reason to dead-letter any of them."""
    ground.send([b"%d" % number for number in range(100)])
    async with running(ground, sized(SMALL, lambda number: 200)):
        await ground.until_marked(100)
        assert ground.keys(REFUSED) == []
        assert ground.keys(SMALL) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("size", [900_000, 999_900, 999_999, 1_000_000])
async def test_state_as_large_as_allowed_is_committed_or_refused_and_others_are_left_alone(ground: Ground, size: int) -> None:
    def plan(record: Record, state: State, now_ms: int) -> Outcome:
        changes = [(b"k", bytes(size - 1))] if record.value == b"3" else []
        return Outcome([Write(OUT, record.key, record.value)], changes)

    ground.send([b"%d" % number for number in range(6)])
    async with running(ground, replace(COUNTED, plan=plan)):
        await ground.until_marked(6)
        assert set(ground.values(OUT)) >= {b"0", b"1", b"2", b"4", b"5"}
        assert len(ground.values(OUT)) + len(ground.keys(REFUSED)) == 6


# Files of lost shards


@pytest.mark.parametrize("warm_max", [0, 2, 10])
async def test_the_files_of_the_most_recently_lost_shards_stay_up_to_a_limit(
    settings_for: SettingsFor, prefix: str, tmp_path: Path, warm_max: int
) -> None:
    settings = settings_for(prefix, warm_stores_max=warm_max)
    kafka: dict[str, Any] = {**settings.kafka()}
    admin = AdminClient(kafka)
    create(admin, prefix, 6, IN, COUNTED.changelog)
    log = await asyncio.to_thread(KafkaLog, COUNTED, Connection(settings, kafka, "w1", tmp_path, Cache(1024 * 1024)))
    folder = tmp_path / COUNTED.name
    await asyncio.gather(*(log.open(number) for number in range(6)))
    for number in range(6):
        os.utime(folder / str(number), (number, number))  # when a file was last made in there says nothing of when it was lost
    lost = [4, 1, 3, 0]
    for number in lost:
        await log.close_shard(number)
    kept = lost[len(lost) - min(warm_max, len(lost)) :]
    assert sorted(path.name for path in folder.iterdir()) == sorted(str(number) for number in (2, 5, *kept))
    for number in (2, 5):
        await log.close_shard(number)
    await log.close()
