"""Days of waiting from a seed, on clocks that step: the workers' and the brokers', each its own, while workers die and rebalance."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from streams.ladder.agent import ladder_agent
from streams.ladder.handler import DUE, RETURN
from streams.ladder.rules import Ladder
from streams.log.machine import Limits
from streams.log.records import Outcome, Record
from streams.log.simulated.clock import simulate
from streams.log.simulated.cluster import Cluster
from streams.log.simulated.log import Faults
from streams.log.simulated.process import Process, System
from topology.ladder import RUNG_TOPICS
from topology.topics import DELIVERIES

START_MS = 1_700_000_000_000
PARTITIONS, HOSTS, RECORDS = 2, 2, 40
HOUR_MS, HOUR_S = 3_600_000, 3_600.0
STEPS_MS = (0, 50, -50, 3_000, -3_000, 600_000, -600_000, 2 * HOUR_MS, -2 * HOUR_MS)
LATE_MS_MAX = 2 * HOUR_MS + 60_000
"""The largest step back, and what kills and rebalances in a row may take."""
HOPS_MAX = 15
"""Of one record on average; about five, were every clock right."""


def true_ms() -> int:
    return START_MS + int(asyncio.get_running_loop().time() * 1000)


@dataclass
class Waits:
    """What a seed came to."""

    seed: int
    due_ms: dict[bytes, int] = field(default_factory=dict)
    back: Counter[bytes] = field(default_factory=Counter)
    let_go_ms: dict[bytes, int] = field(default_factory=dict)
    """When it was last let go, in true time."""
    early: list[str] = field(default_factory=list)
    """Let go before they were due by the clock of the worker that let go."""
    hops: int = 0

    @property
    def late_ms_most(self) -> int:
        return max(let_go_ms - self.due_ms[name] for name, let_go_ms in self.let_go_ms.items())


class World:
    """One process's, with its host's clock."""

    def __init__(self, process: Process, skews_ms: dict[str, int]) -> None:
        self._process, self._skews_ms = process, skews_ms

    def now_ms(self) -> int:
        return true_ms() + self._skews_ms.get(self._process.host.name, 0)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._process.gate.passed()


def run_waits(seed: int) -> Waits:
    """Simulate one seed."""
    return simulate(waits(seed))


async def waits(seed: int) -> Waits:
    chance, report = random.Random(seed), Waits(seed)
    ladder, skews_ms = Ladder(chance.choice([1, 1, 10])), dict[str, int]()
    cluster = Cluster(lambda: true_ms() + skews_ms.get("brokers", 0))
    faults = Faults(abort=chance.choice([0, 0.1]), lost_answer=chance.choice([0, 0.2]))
    limits = Limits(keep_every_s=600, note_ends_every_s=36_000)
    agent = ladder_agent(ladder)
    assert agent.conclude is not None
    agent = replace(agent, plan=watched(agent.plan, report), conclude=watched(agent.conclude, report))
    system = System(agent, PARTITIONS, HOSTS, seed, lambda process: World(process, skews_ms), faults, limits, cluster)
    for number in range(RECORDS):
        due_ms = report.due_ms[b"r%d" % number] = START_MS + int(10 ** chance.uniform(2, 8.8))
        rung = ladder.next_hop(due_ms, START_MS)
        assert rung is not None
        headers = [(DUE, b"%d" % due_ms), (RETURN, DELIVERIES.name.encode())]
        cluster.append((rung.name, number % PARTITIONS), b"r%d" % number, b"value", headers, START_MS)
    for host in system.hosts:
        host.start()
    await troubles(system, skews_ms, chance)
    await asyncio.sleep(max(report.due_ms.values()) / 1000 - true_ms() / 1000 + 3 * HOUR_S)
    judge(system, report)
    return report


def watched(function: Callable[..., Any], report: Waits) -> Callable[..., Any]:
    """Note whatever lets a record go before its time, by the clock that it is told."""

    def watching(given: Any, *others: Any) -> Any:
        outcome = function(given, *others)
        for write in outcome.writes if isinstance(outcome, Outcome) else ():
            record: Record = given if isinstance(given, Record) else given.record
            now_ms = others[-1]
            if write.topic is DELIVERIES:
                name = record.key or b""
                report.let_go_ms[name] = true_ms()
                if now_ms < report.due_ms[name]:
                    report.early.append(f"{name!r} on {record.reference}, by {report.due_ms[name] - now_ms} ms")
        return outcome

    return watching


async def troubles(system: System, skews_ms: dict[str, int], chance: random.Random) -> None:
    """Clocks step, workers die and stay away for a while; in the end all clocks are right."""
    for _ in range(30):
        await asyncio.sleep(chance.choice([10.0, HOUR_S, 6 * HOUR_S]) * chance.random())
        skews_ms[chance.choice(["brokers", *(host.name for host in system.hosts)])] = chance.choice(STEPS_MS)
        if chance.random() < 0.5:
            system.kill(chance.choice(system.hosts), chance.uniform(0.1, 20))
    await asyncio.sleep(chance.choice([1.0, HOUR_S]))
    skews_ms.clear()


def judge(system: System, report: Waits) -> None:
    for number in range(PARTITIONS):
        for entry in system.cluster.read((DELIVERIES.name, number), 0, 10**9):
            report.back[entry.key or b""] += 1
        for topic in RUNG_TOPICS:
            report.hops += sum(1 for _ in system.cluster.read((topic.name, number), 0, 10**9))
