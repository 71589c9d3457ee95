"""`port.Log` on the simulated cluster: every step takes time, may fail, and may be the last thing its worker does."""

import asyncio
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from sortedcontainers import SortedDict

from streams.errors import Aborted, Unwritable
from streams.log.agent import Agent, World
from streams.log.machine import Machine
from streams.log.offsets import Mark
from streams.log.port import Partition, Transaction
from streams.log.records import BY_KEY, Record, Write
from streams.log.simulated.cluster import Cluster, Generation, Place, Reader, brokers_now_ms
from topology.topics import Topic

READ_MAX = 40


@dataclass(frozen=True)
class Faults:
    """How often a step goes wrong, as chances from 0 to 1, and how long steps take."""

    abort: float = 0.0  # a passing failure before the commit
    lost_answer: float = 0.0  # the commit is done and its answer lost: undecided until asked again
    step_ms_max: float = 3.0


@dataclass
class SimulatedStore:
    """A shard's files: they survive their worker, and are as far as the last write before it died."""

    values: SortedDict[bytes, bytes] = field(default_factory=SortedDict)
    next_offset: int = 0

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        found: bytes | None = self.values.get(key)
        return found

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All keys that begin with `prefix`, ascending; not those before `start`."""
        found = takewhile(lambda key: key.startswith(prefix), self.values.irange(max(prefix, start)))
        return iter([(key, self.values[key]) for key in found])

    def after(self, key: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """The next keys after `key`."""
        return [(each, self.values[each]) for each in islice(self.values.irange(key, inclusive=(False, False)), count)]

    def apply(self, changes: Mapping[bytes, bytes | None], next_offset: int) -> None:
        """Store changes and how far they bring us."""
        for key, value in changes.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
        self.next_offset = next_offset


def producer_of(agent: Agent, instance: str) -> str:
    """A worker's transactional id: two roles of one worker do not fence each other."""
    return f"{agent.name} {instance}"


class Gate:
    """Lets a process's steps pass, holds them while it is frozen, and never lets go of them once it is dead."""

    def __init__(self) -> None:
        self.dead = False
        self._open = asyncio.Event()
        self._open.set()

    async def passed(self) -> None:
        """Wait while frozen; for ever when dead."""
        while self.dead or not self._open.is_set():
            if self.dead:
                await asyncio.Event().wait()
            await self._open.wait()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._open.clear()

    def thaw(self) -> None:
        """SIGCONT."""
        self._open.set()


class SimulatedLog:
    """One agent's log in one simulated process."""

    def __init__(
        self,
        agent: Agent,
        world: World,
        cluster: Cluster,
        instance: str,
        disk: dict[int, SimulatedStore],
        gate: Gate,
        faults: Faults,
        chance: random.Random,
    ) -> None:
        self._agent, self._world, self._cluster, self._disk, self._gate, self._faults, self._chance = (
            agent,
            world,
            cluster,
            disk,
            gate,
            faults,
            chance,
        )
        self.group = agent.name
        self.instance, self.producer = instance, producer_of(agent, instance)
        self._epoch = cluster.begin_epoch(self.producer)
        self._reading: dict[Partition, int] = {}
        self._paused: dict[Partition, None] = {}
        self._assigned: int = 0
        self._stores: dict[int, SimulatedStore] = {}
        self._wake = asyncio.Event()
        cluster.readers["log of " + self.group, instance] = Reader(frozenset(topic.name for topic in agent.reads), self._wake)

    async def _step(self) -> None:
        """Time passes; here a process is frozen or dies."""
        await asyncio.sleep(self._chance.random() * self._faults.step_ms_max / 1000)
        await self._gate.passed()

    # The source

    def unassign(self) -> None:
        """Nothing is read until the next assignment."""
        self._reading, self._paused = {}, {}

    def assign(self, epoch: int) -> None:
        """A new assignment begins, paused."""
        self.unassign()
        self._assigned = epoch

    async def read(self, machine: Machine) -> None:
        """Read for the machine until the process ends."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await machine.room()
            await self._step()
            records = list(self._next_records())
            machine.offer(self._assigned, records, list(self._ends()))
            if any(
                position < self._cluster.stable_end((topic.name, n))
                for (topic, n), position in self._reading.items()
                if (topic, n) not in self._paused
            ):
                self._wake.set()

    def _next_records(self) -> Iterator[Record]:
        for partition, position in list(self._reading.items()):
            topic, number = partition
            place = (topic.name, number)
            if partition in self._paused or position >= self._cluster.stable_end(place):
                continue
            count = self._chance.randint(1, READ_MAX)
            for entry in self._cluster.read(place, position, count):
                self._reading[partition] = entry.offset + 1
                yield Record(topic, number, entry.offset, entry.key, entry.value, entry.headers, entry.timestamp_ms)
            stable = min(position + count, self._cluster.stable_end(place))
            self._reading[partition] = max(self._reading[partition], stable)

    def _ends(self) -> Iterator[tuple[Topic, int, int]]:
        for (topic, number), position in self._reading.items():
            if position == self._cluster.stable_end((topic.name, number)):
                yield topic, number, position

    # Asked by the machine

    async def marks(self, partitions: Sequence[Partition]) -> Mapping[Partition, Mark | None]:
        """What is committed, once no open transaction can change it."""
        places = [(topic.name, number) for topic, number in partitions]
        await self._step()
        while not self._cluster.marks_are_stable(self.group, places):
            await self._step()
        committed = self._cluster.groups[self.group].committed
        marks = {partition: committed.get(place) for partition, place in zip(partitions, places, strict=True)}
        await self._step()
        return marks

    async def beginning(self, partition: Partition) -> int:
        """The first offset that there is."""
        await self._step()
        return 0

    async def open(self, shard: int) -> SimulatedStore:
        """A shard's store, restored to where its changelog ended when it was asked for."""
        assert shard not in self._stores, f"shard {shard} is open already: real files are locked then"
        place = (self._agent.changelog.name, shard)
        await self._step()
        end = self._cluster.end(place)
        store = self._disk.setdefault(shard, SimulatedStore())
        while store.next_offset < end:
            await self._step()
            start, count = store.next_offset, self._chance.randint(1, 200)
            changes = {entry.key or b"": entry.value for entry in self._cluster.read(place, start, count)}
            store.apply(changes, min(start + count, self._cluster.stable_end(place)))
        self._stores[shard] = store
        return store

    async def close_shard(self, shard: int) -> None:
        """The shard went elsewhere."""
        self._stores.pop(shard, None)

    async def write(self, transaction: Transaction) -> None:
        """The steps of a Kafka transaction, then the stores; a process may stop or die between any two of them."""
        cluster, producer, epoch = self._cluster, self.producer, self._epoch
        await self._step()
        opened = cluster.transaction(producer, epoch)
        checkpoints: dict[int, int] = {}
        try:
            self._append(transaction.writes)
            await self._step()
            cluster.transaction(producer, epoch)
            for shard, changes in transaction.changes.items():
                for key, value in changes.items():
                    checkpoints[shard] = 1 + cluster.append((self._agent.changelog.name, shard), key, value, (), 0, opened)
            await self._step()
            cluster.transaction(producer, epoch)
            for topic, partition, mark in transaction.positions:
                cluster.add_offsets(opened, self.group, self.instance, transaction.generation, (topic.name, partition), mark)
            await self._step()
            if self._chance.random() < self._faults.abort:
                raise Aborted("a passing failure")
        except (Aborted, Unwritable):
            await self._step()
            cluster.end_transaction(producer, epoch, commit=False)
            raise
        cluster.end_transaction(producer, epoch, commit=True)
        while self._chance.random() < self._faults.lost_answer:
            await self._step()
            cluster.end_transaction(producer, epoch, commit=True)
        await self._step()
        for shard, changes in transaction.changes.items():
            self._stores[shard].apply(changes, checkpoints[shard])

    async def probe(self, writes: Sequence[tuple[int, Write]]) -> bool:
        """Whether the broker takes these records."""
        await self._step()
        try:
            self._append(writes)
        except Unwritable:
            return False
        finally:
            self._cluster.end_transaction(self.producer, self._epoch, commit=False)
        return True

    def _append(self, writes: Sequence[tuple[int, Write]]) -> None:
        opened = self._cluster.transaction(self.producer, self._epoch)
        appended_ms = (self._cluster.clock or brokers_now_ms)()
        for shard, write in writes:
            if write.bytes_at_most > write.topic.record_bytes_max:
                raise Unwritable(f"{write.bytes_at_most} bytes")
            by_shard = write.partition is None or write.partition == BY_KEY  # what a worker writes by key is about its shard's own
            place: Place = (write.topic.name, shard if by_shard else write.partition or 0)
            now_ms = appended_ms if write.topic.timestamps == "LogAppendTime" else self._world.now_ms()
            self._cluster.append(place, write.key, write.value, write.headers, now_ms, opened)

    def read_from(self, positions: Mapping[Partition, int], paused: Collection[Partition]) -> None:
        """Read these from now on, and nothing else."""
        self._reading, self._paused = dict(positions), dict.fromkeys(paused)
        self._wake.set()

    def resume(self, partition: Partition, offset: int | None = None) -> None:
        """Read on."""
        self._paused.pop(partition, None)
        self._wake.set()
        if offset is not None:
            self._reading[partition] = offset

    def pause(self, partition: Partition) -> None:
        """Read no more of it for now."""
        self._paused[partition] = None


__all__ = ["Faults", "Gate", "Generation", "SimulatedLog", "SimulatedStore"]
