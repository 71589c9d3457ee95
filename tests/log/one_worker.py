"""One machine alone in its group on a simulated cluster, driven by a test, on made-up time."""

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from streams.errors import Aborted, Unwritable
from streams.log.agent import Agent
from streams.log.machine import Limits, Machine
from streams.log.offsets import Mark
from streams.log.port import Partition, Transaction
from streams.log.records import Headers, Outcome, Record, Work, Write
from streams.log.simulated.cluster import Cluster, Entry, Generation, Group, Member
from streams.log.simulated.log import Faults, Gate, SimulatedLog, SimulatedStore
from streams.log.state import State
from tests.pipelines import IN, OUT, REFUSED
from topology.topics import Topic, changelog

PATIENCE_S = 60.0
"""Of made-up time: a test waits for what must happen, and none of it takes a minute."""

USUAL_LIMITS, NO_FAULTS = Limits(), Faults(step_ms_max=1.0)
Disk = dict[int, SimulatedStore]
member_ids = itertools.count(1)


def refuse(record: Record, reason: str, now_ms: int) -> Outcome:
    """What becomes of a record that cannot be handled: its reference and the reason, never the record itself."""
    return Outcome([Write(REFUSED, record.reference.encode(), reason.encode())])


def pass_on(record: Record, state: Any, now_ms: int) -> Outcome:
    return Outcome([Write(OUT, record.key, record.value)])


AGENT = Agent("tested", [IN], [OUT, REFUSED], changelog("tested"), pass_on, refuse)


def agent(**others: Any) -> Agent:
    return replace(AGENT, **others)


def plan_work(record: Record, state: State, now_ms: int) -> list[Work[Any]]:
    return [Work((record.key, record.value))]


async def perform_work(task: tuple[bytes, bytes], world: Any) -> bytes:
    await world.work(task[1])
    return task[1]


def conclude_work(task: tuple[bytes, bytes], result: bytes, state: State, now_ms: int) -> Outcome:
    return Outcome([Write(OUT, task[0], result)])


WORKING = agent(plan=plan_work, perform=perform_work, conclude=conclude_work)


class DrivenWorld:
    """Effects that end when the test says so, and a clock that it can move."""

    def __init__(self) -> None:
        self.skew_ms = 0
        self.begun: Counter[bytes] = Counter()
        self.in_work = 0
        self.in_work_max = 0
        self._released: set[bytes] = set()
        self._all_released = False
        self._turn = asyncio.Event()

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000) + self.skew_ms

    async def work(self, name: bytes) -> None:
        """An effect: it ends when it is released."""
        self.begun[name] += 1
        self.in_work += 1
        self.in_work_max = max(self.in_work_max, self.in_work)
        try:
            while not (self._all_released or name in self._released):
                await self._turn.wait()
        finally:
            self.in_work -= 1

    def release(self, *names: bytes) -> None:
        """Let these end; with no names, everything from now on."""
        self._released.update(names)
        self._all_released = self._all_released or not names
        self._turn.set()
        self._turn = asyncio.Event()


class WatchedLog(SimulatedLog):
    """Remembers what the machine asked of it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: Counter[str] = Counter()
        self.written: list[Transaction] = []
        self.aborts_everything = False
        self.refuses_everything = False  # for the sake of its changelog: no record of it is to blame

    async def write(self, transaction: Transaction) -> None:
        if self.aborts_everything:
            raise Aborted("the broker is away")
        if self.refuses_everything:
            raise Unwritable("too large")
        await super().write(transaction)
        self.written.append(transaction)

    async def probe(self, writes: Any) -> bool:
        self.asked["probe"] += 1
        return await super().probe(writes)

    def pause(self, partition: Partition) -> None:
        self.asked["pause"] += 1
        super().pause(partition)

    def resume(self, partition: Partition, offset: int | None = None) -> None:
        self.asked["resume"] += offset is None
        super().resume(partition, offset)


class OneWorker:
    """A machine and its log. Another one on the same cluster and disk is this worker, started again."""

    def __init__(self, agent: Agent, cluster: Cluster, disk: Disk, limits: Limits, faults: Faults, partitions: int, seed: int) -> None:
        self.agent, self.cluster, self.partitions = agent, cluster, partitions
        self.world = DrivenWorld()
        self.group = cluster.groups.setdefault(agent.name, Group(partitions))
        self.log = WatchedLog(agent, self.world, cluster, "w", disk, Gate(), faults, random.Random(seed))
        self.machine = Machine(agent, self.world, self.log, f"w.{next(member_ids)}", limits)
        self.running: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._epochs = itertools.count(1)

    async def start(self) -> None:
        self.running = asyncio.create_task(self.machine.run())
        self._tasks = [self.running, asyncio.create_task(self.log.read(self.machine)), asyncio.create_task(self.machine.keep())]
        await self.balance()

    async def balance(self) -> None:
        """A rebalance gives this worker everything, under the next generation."""
        await self.machine.revoked()
        self.log.unassign()
        member = self.group.members["w"] = Member(next(member_ids))
        self.group.balance()
        epoch = next(self._epochs)
        self.log.assign(epoch)
        await self.machine.assigned(epoch, Generation(self.group.generation, member.id), list(member.numbers))

    def die(self) -> None:
        for task in self._tasks:
            task.cancel()
        for shard in self.machine.shards.values():
            shard.drop()
        self.cluster.readers.clear()

    # What a test sends and sees

    def send(self, *values: bytes, key: bytes = b"k", partition: int = 0, headers: Headers = ()) -> None:
        for value in values:
            self.cluster.append((IN.name, partition), key, value, headers, self.world.now_ms())

    def committed(self, topic: Topic, partition: int = 0) -> list[Entry]:
        return list(self.cluster.read((topic.name, partition), 0, 10**9))

    def values(self, topic: Topic, partition: int = 0) -> list[bytes | None]:
        return [entry.value for entry in self.committed(topic, partition)]

    def refused(self, partition: int = 0) -> dict[bytes, bytes]:
        return {entry.key or b"": entry.value or b"" for entry in self.committed(REFUSED, partition)}

    def state(self, partition: int = 0) -> dict[bytes, bytes | None]:
        """What the changelog says, without the machine's own keys; a tombstone is None."""
        return {
            entry.key: entry.value for entry in self.committed(self.agent.changelog, partition) if entry.key and entry.key[:1] != b"\x00"
        }

    def mark(self, partition: int = 0) -> Mark | None:
        return self.group.committed.get((IN.name, partition))

    def offset(self, partition: int = 0) -> int:
        mark = self.mark(partition)
        return -1 if mark is None else mark.offset

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait on made-up time; what ended the machine is raised."""
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        while not holds():
            assert asyncio.get_running_loop().time() < deadline_s, "it never came to that"
            assert self.running is not None
            if self.running.done():
                self.running.result()
            await asyncio.sleep(0.001)

    async def until_ended(self) -> None:
        """Wait for the machine to give up, and raise why."""
        assert self.running is not None
        await asyncio.wait_for(asyncio.shield(self.running), PATIENCE_S)

    async def until_quiet(self) -> None:
        """Wait until nothing more is going to happen by itself."""
        written = -1
        while written != len(self.log.written):
            written = len(self.log.written)
            await asyncio.sleep(1)


@contextlib.asynccontextmanager
async def one_worker(
    agent: Agent,
    *,
    cluster: Cluster | None = None,
    disk: Disk | None = None,
    limits: Limits = USUAL_LIMITS,
    faults: Faults = NO_FAULTS,
    partitions: int = 1,
    seed: int = 0,
) -> AsyncIterator[OneWorker]:
    """One that runs already, and dies with -9 at the end."""
    worker = OneWorker(agent, Cluster() if cluster is None else cluster, {} if disk is None else disk, limits, faults, partitions, seed)
    await worker.start()
    try:
        yield worker
    finally:
        worker.die()
