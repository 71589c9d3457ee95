"""A compacted topic read whole and kept current, on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from streams.errors import Fatal, MalformedRecord, TopologyDrift
from streams.log.table import Table
from streams.settings import Settings
from tests.conftest import SettingsFor
from tests.log.clients import create
from tests.log.conftest import LogLines
from topology import broker as brokers
from topology.topics import Topic

pytestmark = pytest.mark.kafka

WHOLE = Topic("whole", "Is read whole.", "key", None, "compact", partitioned_by_merchant=False)
PATIENCE_S = 60.0

Pair = tuple[bytes, bytes | None]


class Refusal(Fatal):
    """What a reader raises that cannot go on."""


@dataclass
class Ground:
    """A topic under a prefix of its own, and a reader that keeps all that it is given."""

    settings: Settings
    kafka: dict[str, Any]
    rows: dict[bytes | None, bytes | None] = field(default_factory=dict)
    applied: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    loops: set[asyncio.AbstractEventLoop] = field(default_factory=set)

    @property
    def name(self) -> str:
        return WHOLE.on_cluster(self.settings.topic_prefix)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        self.loops.add(asyncio.get_running_loop())
        if value == b"malformed":
            raise MalformedRecord("this is no row")
        if value == b"fatal":
            raise Refusal("cannot go on")
        self.rows[key] = value
        self.applied.append((key, value))

    def send(self, pairs: Sequence[Pair], partition: int = 0) -> None:
        producer = Producer(self.kafka)
        for key, value in pairs:
            producer.produce(self.name, value, key, partition)
        assert producer.flush(PATIENCE_S) == 0

    @asynccontextmanager
    async def table(self) -> AsyncIterator[Table]:
        table = Table(WHOLE, self.settings, self.kafka, self.apply)
        try:
            yield table
        finally:
            await table.close()

    @asynccontextmanager
    async def loaded(self) -> AsyncIterator[Table]:
        async with self.table() as table:
            await asyncio.wait_for(table.load(), PATIENCE_S)
            yield table


async def until(holds: Callable[[], bool], working: "asyncio.Task[None]") -> None:
    """Wait until something holds, and no longer than it is worked on."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            if working.done():
                working.result()
            await asyncio.sleep(0.01)


@asynccontextmanager
async def followed(table: Table) -> AsyncIterator["asyncio.Task[None]"]:
    """Follow a table meanwhile."""
    following = asyncio.create_task(table.follow())
    try:
        yield following
    finally:
        following.cancel()
        await asyncio.wait([following])


@pytest.fixture
def ground(settings_for: SettingsFor, prefix: str) -> Ground:
    return made(settings_for(prefix), partitions=1)


def made(settings: Settings, partitions: int) -> Ground:
    kafka: dict[str, Any] = {**settings.kafka(), "log_level": 0}
    create(AdminClient(kafka), settings.topic_prefix, partitions, WHOLE)
    return Ground(settings, kafka)


def transactional(ground: Ground, name: str) -> Producer:
    producer = Producer({**ground.kafka, "transactional.id": ground.settings.topic_prefix + name})
    producer.init_transactions(PATIENCE_S)
    return producer


def send_in_transaction(ground: Ground, producer: Producer, pairs: Sequence[Pair]) -> None:
    """Leave it open."""
    producer.begin_transaction()
    for key, value in pairs:
        producer.produce(ground.name, value, key, 0)
    producer.flush(PATIENCE_S)


async def test_an_empty_topic_loads_and_is_followed(ground: Ground) -> None:
    async with ground.loaded() as table:
        assert ground.applied == []
        async with followed(table) as following:
            ground.send([(b"a", b"1")])
            await until(lambda: ground.rows == {b"a": b"1"}, following)


async def test_all_that_was_written_before_is_applied_and_the_last_of_each_key_holds(ground: Ground, log_lines: LogLines) -> None:
    ground.send([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b"1")])
    async with ground.loaded():
        assert ground.rows == {b"a": b"2", b"b": None, b"c": b"1"}
        assert (b"b", None) in ground.applied
        assert ground.loops == {asyncio.get_running_loop()}
    assert [line["records"] for line in log_lines if line["event"] == "table.loaded"] == [5]


async def test_all_partitions_are_read_and_more_than_one_batch_of_each(settings_for: SettingsFor, prefix: str) -> None:
    ground = made(settings_for(prefix), partitions=3)
    for partition in range(3):
        ground.send([(b"%d-%d" % (partition, number), b"%d" % number) for number in range(700)], partition)
    async with ground.loaded():
        assert ground.rows == {b"%d-%d" % (partition, number): b"%d" % number for partition in range(3) for number in range(700)}
        assert len(ground.applied) == 2_100


async def test_a_topic_with_nothing_but_an_aborted_transaction_loads(ground: Ground) -> None:
    producer = transactional(ground, "writer")
    send_in_transaction(ground, producer, [(b"ghost", b"1")])
    producer.abort_transaction(PATIENCE_S)
    async with ground.loaded():
        assert ground.applied == []


async def test_what_is_written_afterwards_arrives_and_a_second_load_catches_up(ground: Ground) -> None:
    ground.send([(b"a", b"1")])
    async with ground.loaded() as table:
        async with followed(table) as following:
            ground.send([(b"a", b"2"), (b"b", b"1")])
            await until(lambda: ground.rows == {b"a": b"2", b"b": b"1"}, following)
            ground.send([(b"a", None)])
            await until(lambda: ground.rows[b"a"] is None, following)
        ground.send([(b"c", b"1")])
        await asyncio.wait_for(table.load(), PATIENCE_S)
        assert ground.applied == [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"a", None), (b"c", b"1")]


async def test_nothing_is_lost_or_doubled_when_following_is_cancelled_and_begun_again(ground: Ground) -> None:
    async with ground.loaded() as table:
        for number in range(40):
            async with followed(table):
                ground.send([(b"k", b"%d" % number)])
                await asyncio.sleep(0)  # so that it is cancelled with a read under way
        async with followed(table) as following:
            await until(lambda: ground.rows.get(b"k") == b"39", following)
        assert [value for _, value in ground.applied] == [b"%d" % number for number in range(40)]


async def test_committed_records_are_applied_aborted_ones_are_not_and_markers_are_passed(ground: Ground) -> None:
    """Offsets: a 0, marker 1, ghost 2, marker 3. The last record that can be read lies three before the end."""
    producer = transactional(ground, "writer")
    send_in_transaction(ground, producer, [(b"a", b"1")])
    producer.commit_transaction(PATIENCE_S)
    send_in_transaction(ground, producer, [(b"ghost", b"1")])
    producer.abort_transaction(PATIENCE_S)
    async with ground.loaded() as table:
        assert ground.applied == [(b"a", b"1")]
        async with followed(table) as following:
            send_in_transaction(ground, producer, [(b"ghost", b"2")])
            producer.abort_transaction(PATIENCE_S)
            send_in_transaction(ground, producer, [(b"a", b"2")])
            producer.commit_transaction(PATIENCE_S)
            await until(lambda: ground.rows == {b"a": b"2"}, following)


async def test_a_load_waits_for_an_open_transaction_that_hides_what_was_acknowledged_behind_it(ground: Ground) -> None:
    producer = transactional(ground, "writer")
    ground.send([(b"before", b"1")])
    send_in_transaction(ground, producer, [(b"open", b"1")])
    ground.send([(b"acknowledged", b"1")])
    async with ground.table() as table:
        loading = asyncio.create_task(table.load())
        await until(lambda: ground.rows == {b"before": b"1"}, loading)
        assert not loading.done()
        await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
        await asyncio.wait_for(loading, PATIENCE_S)
        assert ground.rows == {b"before": b"1", b"open": b"1", b"acknowledged": b"1"}


async def test_a_malformed_record_is_told_with_its_place_and_the_ones_behind_it_are_applied(ground: Ground, log_lines: LogLines) -> None:
    ground.send([(b"a", b"1"), (b"b", b"malformed"), (b"c", b"1")])
    async with ground.loaded() as table:
        assert ground.rows == {b"a": b"1", b"c": b"1"}
        async with followed(table) as following:
            ground.send([(b"d", b"malformed"), (b"e", b"1")])
            await until(lambda: b"e" in ground.rows, following)
    refused = [line for line in log_lines if line["event"] == "table.record_refused"]
    assert [(line["where"], line["reason"]) for line in refused] == [
        (f"{ground.name}-0@1", "this is no row"),
        (f"{ground.name}-0@3", "this is no row"),
    ]


async def test_what_the_reader_cannot_go_on_from_ends_the_load(ground: Ground) -> None:
    ground.send([(b"a", b"fatal")])
    async with ground.table() as table:
        with pytest.raises(Refusal):
            await asyncio.wait_for(table.load(), PATIENCE_S)


async def test_what_the_reader_cannot_go_on_from_ends_the_following(ground: Ground) -> None:
    async with ground.loaded() as table:
        ground.send([(b"a", b"fatal")])
        with pytest.raises(Refusal):
            await asyncio.wait_for(table.follow(), PATIENCE_S)


async def test_a_topic_that_is_missing_is_told_with_what_to_do(settings_for: SettingsFor, prefix: str) -> None:
    settings = settings_for(prefix)
    async with Ground(settings, {**settings.kafka(), "log_level": 0}).table() as table:
        with pytest.raises(TopologyDrift, match=r"hookline topology apply"):
            await asyncio.wait_for(table.load(), PATIENCE_S)


async def test_a_broker_that_goes_away_and_comes_back_is_survived_by_who_follows_and_by_who_loads(tmp_path: Path, prefix: str) -> None:
    folder = tmp_path / "broker"
    started = await asyncio.to_thread(brokers.ensure, folder, port=0)
    try:
        ground = made(Settings(bootstrap_servers=started.bootstrap_servers, topic_prefix=prefix), partitions=1)
        later = Ground(ground.settings, ground.kafka)
        ground.send([(b"a", b"1")])
        async with ground.loaded() as table, followed(table) as following, later.table() as another:
            await asyncio.to_thread(brokers.stop, folder)
            loading = asyncio.create_task(another.load())
            await asyncio.to_thread(brokers.start_node, folder, started.nodes[0].id)
            ground.send([(b"a", b"2")])
            await until(lambda: ground.rows == {b"a": b"2"}, following)
            await asyncio.wait_for(loading, PATIENCE_S)
            assert later.applied[:1] == [(b"a", b"1")]
        assert ground.applied == [(b"a", b"1"), (b"a", b"2")]
    finally:
        await asyncio.to_thread(brokers.stop, folder)
