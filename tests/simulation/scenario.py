"""One seeded run of a pipeline on the simulated log: load, faults, and what must be true at the end."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from streams.log.agent import Agent
from streams.log.machine import BORN, Limits
from streams.log.offsets import unpack
from streams.log.simulated.clock import simulate
from streams.log.simulated.cluster import Place
from streams.log.simulated.log import Faults
from streams.log.simulated.process import Process, System
from tests.pipelines import IN, OUTPUTS

PARTITIONS, HOSTS, KEYS, RECORDS = 4, 3, 7, 120
QUIET_AFTER_S = 300.0


@dataclass
class Report:
    """What a run came to: the same for the same seed."""

    seed: int
    faults: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    posted: Counter[bytes] = field(default_factory=Counter)
    ended_s: float = 0.0
    transactions: int = 0


class SimulatedWorld:
    """A clock that steps, and a network that answers late, or not at all."""

    def __init__(self, process: Process, chance: random.Random, report: Report) -> None:
        self._process, self._chance, self._report = process, chance, report
        self.skew_ms = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000) + self.skew_ms

    async def post(self, value: bytes) -> None:
        await asyncio.sleep(self._chance.expovariate(4))
        await self._process.gate.passed()
        self._report.posted[value] += 1
        await asyncio.sleep(self._chance.expovariate(20))
        await self._process.gate.passed()


def run_seed(agent: Agent, seed: int) -> Report:
    """Simulate one seed."""
    return simulate(scenario(agent, seed))


async def scenario(agent: Agent, seed: int) -> Report:
    chance, report = random.Random(seed), Report(seed)
    worlds: list[SimulatedWorld] = []

    def world(process: Process) -> SimulatedWorld:
        worlds.append(SimulatedWorld(process, chance, report))
        return worlds[-1]

    faults = Faults(abort=chance.choice([0, 0.1, 0.3]), lost_answer=chance.choice([0, 0.2]), step_ms_max=chance.choice([1, 5, 20]))
    limits = Limits(
        in_flight_max=chance.choice([3, 20, 800]),
        uncommitted_max=chance.choice([10, 100, 5000]),
        keep_every_s=chance.choice([1, 5]),
        note_ends_every_s=10,
    )
    system = System(agent, PARTITIONS, HOSTS, seed, world, faults, limits)
    for host in system.hosts:
        host.start()
    sent = {f"{number}".encode(): f"k{chance.randrange(KEYS)}".encode() for number in range(RECORDS)}
    await asyncio.gather(load(system, sent, chance), disturb(system, worlds, chance, report))
    await until_quiet(system, report)
    check(system, sent, report)
    report.ended_s, report.transactions = asyncio.get_running_loop().time(), sum(len(p) for p in system.cluster.partitions.values())
    return report


async def load(system: System, sent: dict[bytes, bytes], chance: random.Random) -> None:
    """Write the input, some of it in transactions, among which some are aborted: their markers and ghosts take offsets."""
    cluster = system.cluster
    epoch = cluster.begin_epoch("producer")
    pace = chance.choice([5, 20, 100])
    for value, key in sent.items():
        await asyncio.sleep(chance.expovariate(pace))
        place = (IN.name, key[1] % PARTITIONS)
        if chance.random() < 0.3:
            if chance.random() < 0.3:
                cluster.append(place, key, b"ghost", (), 0, cluster.transaction("producer", epoch))
                cluster.end_transaction("producer", epoch, commit=False)
            cluster.append(place, key, value, (), 0, cluster.transaction("producer", epoch))
            cluster.end_transaction("producer", epoch, commit=True)
        else:
            cluster.append(place, key, value, (), 0)


async def disturb(system: System, worlds: list[SimulatedWorld], chance: random.Random, report: Report) -> None:
    """Kill, freeze and step clocks at random moments."""
    for _ in range(chance.randint(1, 6)):
        await asyncio.sleep(chance.expovariate(0.6))
        host, how = chance.choice(system.hosts), chance.choice(["kill", "kill", "kill long", "freeze", "freeze long", "clock"])
        report.faults.append(f"{asyncio.get_running_loop().time():.3f} {how} {host.name}")
        match how:
            case "kill":
                system.kill(host, chance.uniform(0.05, 2))
            case "kill long":
                system.kill(host, chance.uniform(11, 20))
            case "freeze":
                await system.freeze(host, chance.uniform(0.1, 3))
            case "freeze long":
                await system.freeze(host, chance.uniform(10.5, 20))
            case "clock":
                chance.choice(worlds).skew_ms += chance.choice([-3_600_000, -50, 50, 3_600_000])


async def until_quiet(system: System, report: Report) -> None:
    """Wait until everything that was sent is committed; a pipeline that is stuck never is."""
    deadline_s = asyncio.get_running_loop().time() + QUIET_AFTER_S
    while asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(1)
        if all(is_done(system, (IN.name, number)) for number in range(PARTITIONS)):
            await asyncio.sleep(2)
            return
    report.wrong.append("stuck: not everything was ever committed")


def is_done(system: System, place: Place) -> bool:
    last = max((entry.offset for entry in system.cluster.read(place, 0, 10**9)), default=-1)
    mark = system.group.committed.get(place)
    if mark is None:
        return last < 0
    high, unfinished = unpack(mark)
    return mark.offset > last or (high > last and not unfinished and mark.offset == high)


def check(system: System, sent: dict[bytes, bytes], report: Report) -> None:
    """Output and state equal the input exactly, in order per key."""
    counted: Counter[bytes] = Counter()
    seen: Counter[bytes] = Counter()
    for number in range(PARTITIONS):
        for entry in system.cluster.read((OUTPUTS[system.agent.name].name, number), 0, 10**9):
            turn, value = (entry.value or b"").split(b" ")
            key = entry.key or b""
            counted[key] += 1
            seen[value] += 1
            if int(turn) != counted[key] or sent.get(value) != key:
                report.wrong.append(f"{key!r}: output {value!r} has number {int(turn)}, expected {counted[key]}")
    report.wrong += [f"lost: {value!r}" for value in sent if seen[value] == 0]
    report.wrong += [f"twice: {value!r}" for value, times in seen.items() if times > 1]
    state = changelog_state(system)
    if state != {key: str(times).encode() for key, times in Counter(sent.values()).items()}:
        report.wrong.append(f"state is {state}")
    if system.agent.perform is not None:
        report.wrong += [f"never posted: {value!r}" for value in sent if report.posted[value] == 0]
    for host in system.hosts:
        for shard in host.machine.shards.values() if host.process and not host.process.gate.dead else ():
            stored = {key: value for key, value in host.disk[shard.number].values.items() if not key.startswith(BORN)}
            if stored != {key: value for key, value in state.items() if key[1] % PARTITIONS == shard.number}:
                report.wrong.append(f"the store of {host.name} shard {shard.number} differs from its changelog")


def changelog_state(system: System) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for number in range(PARTITIONS):
        for entry in system.cluster.read((system.agent.changelog.name, number), 0, 10**9):
            if entry.key and entry.value is not None and not entry.key.startswith(BORN):
                state[entry.key] = entry.value
    return state
