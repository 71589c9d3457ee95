"""A simulated pipeline of deliver, ladder and replay on one log, with merchants that a test mends or breaks and workers that it kills."""

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

import schemas
from schemas.event import Event
from schemas.events import encode_event
from streams.dead_letters import dead_letter
from streams.delivery.brake import Brake
from streams.delivery.gate import Gate
from streams.delivery.generations import NEXT
from streams.delivery.handler import Deliverer
from streams.delivery.results import Answer, Result
from streams.delivery.sealing import Keyring
from streams.delivery.state import ShardMemory, expires_ms
from streams.delivery.subscription import Subscriptions, changed, encoded
from streams.delivery.subscription_changes import NewSecret, Wanted, created, sealed
from streams.log.agent import Agent
from streams.log.machine import Limits
from streams.log.records import Record
from streams.log.simulated.clock import simulate
from streams.log.simulated.cluster import Cluster
from streams.log.simulated.log import Faults
from streams.log.simulated.process import Process, System
from streams.replay.handler import Replayer
from streams.replay.reading import Stretch
from streams.replay.request import Progress
from streams.replay.state import ReplayMemory
from streams.replay.state import expires_ms as replay_expires_ms
from streams.roles import Equipment
from streams.settings import Settings
from topology import flow, topics
from topology.topics import Topic

START_MS = 1_700_000_000_000
PARTITIONS = 2
QUICK = Faults(step_ms_max=1.0)
PATIENCE_S = 6 * 3_600.0
KEYRING = Keyring({"k": bytes(32)})


def now_ms() -> int:
    return START_MS + int(asyncio.get_running_loop().time() * 1000)


class SimulatedReader:
    """`reading.Reader` on the simulated log."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster, self._process = cluster, process

    async def bounds(self, topic: Topic, partition: int) -> tuple[int, int]:
        await self._process.gate.passed()
        return 0, self._cluster.stable_end((topic.name, partition))

    async def offset_at(self, topic: Topic, partition: int, time_ms: int) -> int:
        _, end = await self.bounds(topic, partition)
        entries = self._cluster.read((topic.name, partition), 0, end)
        return next((entry.offset for entry in entries if entry.timestamp_ms >= time_ms), end)

    async def records(self, topic: Topic, partition: int, offsets: Sequence[int]) -> tuple[Mapping[int, Record], int]:
        await self._process.gate.passed()
        found = {}
        for offset in offsets[:7]:
            found.update(
                {each.offset: self._record(topic, partition, each) for each in self._cluster.read((topic.name, partition), offset, 1)}
            )
        return found, offsets[7] if len(offsets) > 7 else offsets[-1] + 1

    async def stretch(self, topic: Topic, partition: int, start: int, end: int, count: int, key: bytes | None = None) -> Stretch:
        await self._process.gate.passed()
        taken: list[Record] = []
        passed = 0
        for entry in self._cluster.read((topic.name, partition), start, end - start):
            passed += 1
            if key is None or entry.key == key:
                taken.append(self._record(topic, partition, entry))
            if len(taken) == count:
                return Stretch(taken, entry.offset + 1, passed)
        return Stretch(taken, end, passed)

    @staticmethod
    def _record(topic: Topic, partition: int, entry: Any) -> Record:
        return Record(topic, partition, entry.offset, entry.key, entry.value, entry.headers, entry.timestamp_ms)


@dataclass(frozen=True)
class Post:
    """What reached a merchant."""

    at_ms: int
    event: str
    body: bytes
    code: int


class World:
    """One process's: what it begins ends with it."""

    def __init__(self, process: Process, pipeline: "Pipeline") -> None:
        self._process, self._pipeline = process, pipeline
        self.client, self.gate = self, Gate(64)
        self.reader = SimulatedReader(pipeline.cluster, process)

    def now_ms(self) -> int:
        return now_ms()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._process.gate.passed()

    async def post(self, url: str, headers: bytes, body: bytes, answer_timeout_s: float, connect_timeout_s: float | None = None) -> Result:
        await self._process.gate.passed()
        await asyncio.sleep(self._pipeline.takes_s)
        await self._process.gate.passed()
        code = self._pipeline.codes[url]
        self._pipeline.posts[url].append(Post(now_ms(), orjson.loads(body)["id"], body, code))
        return Answer(code, 10, {}, b"")


class Pipeline:
    """The three agents, and what a test does to them."""

    def __init__(self, seed: int = 1, faults: Faults = QUICK, keep_every_s: float = 1.0, remembered_ms: int = 604_800_000) -> None:
        self.chance = random.Random(seed)
        self.subscriptions = Subscriptions(KEYRING)
        self.codes: dict[str, int] = defaultdict(lambda: 200)
        self.posts: dict[str, list[Post]] = defaultdict(list)
        self.takes_s = 0.01
        self._numbers = itertools.count()
        deliverer = Deliverer(self.subscriptions, Brake(), remembered_ms, random.Random(seed + 1))
        replayer = Replayer(self.subscriptions, 50.0, PARTITIONS)
        clock = type("Clock", (), {"now_ms": staticmethod(now_ms)})()
        self.cluster = Cluster()
        limits = Limits(keep_every_s=keep_every_s, note_ends_every_s=3_600)
        agents = (
            Agent(
                "deliver", flow.DELIVER.reads, flow.DELIVER.writes, topics.CHANGELOG_DELIVER, deliverer.plan, dead_letter,
                deliverer.perform, deliverer.conclude, lambda state: ShardMemory(state, clock), True, expires_ms, deliverer.tick,
            ),
            Equipment(["ladder"], Settings(), {}).agents[0],
            Agent(
                "replay", flow.REPLAY.reads, flow.REPLAY.writes, topics.CHANGELOG_REPLAY, replayer.plan, dead_letter,
                replayer.perform, replayer.conclude, ReplayMemory, False, replay_expires_ms,
            ),
        )  # fmt: skip
        self.systems = {
            agent.name: System(agent, PARTITIONS, 1, seed + place, lambda process: World(process, self), faults, limits, self.cluster)
            for place, agent in enumerate(agents)
        }
        for name, system in self.systems.items():
            for host in system.hosts:
                host.name = f"{name}-{host.name}"
                host.start()

    def kill(self, role: str, restart_after_s: float = 1.0) -> None:
        self.systems[role].kill(self.systems[role].hosts[0], restart_after_s)

    # What happens outside

    def subscribe(self, merchant: str = "m0", **wanted: Any) -> str:
        name = f"sub_{next(self._numbers)}".ljust(26, "0")
        secret = sealed(NewSecret(id="sec_1", algorithm="hmac-sha256", text="whsec_" + "a" * 32), name, KEYRING, bytes(12), START_MS)
        usual = {"url": f"https://{merchant}.example/{name}", "rate_per_s": 1_000.0, "burst": 1_000, "overrides": {"delays_ms": [1_000]}}
        fields = created(name, merchant, Wanted(**{**usual, **wanted}), secret, START_MS, allow_loopback=False, disabled=False)
        self.write_subscription(name, encoded(fields))
        return name

    def change(self, name: str, **changes: Any) -> None:
        self.write_subscription(name, encoded(changed(self.subscriptions.by_id[name].fields, now_ms(), **changes)))

    def write_subscription(self, name: str, value: bytes | None) -> None:
        self.cluster.append((topics.SUBSCRIPTIONS.name, 0), name.encode(), value, (), now_ms())
        self.subscriptions.apply(name.encode(), value)

    def url(self, name: str) -> str:
        return self.subscriptions.by_id[name].url

    def answer(self, name: str, code: int) -> None:
        self.codes[self.url(name)] = code

    def publish(self, count: int = 1, merchant: str = "m0", resource: str | None = None) -> list[str]:
        names = []
        for _ in range(count):
            name = f"evt_{next(self._numbers):04}"
            event = Event(
                id=name, type="payin.success", source="/core", merchant=merchant, time_ms=now_ms(), data=orjson.dumps({"of": name}),
                resource=resource,
            )  # fmt: skip
            value, headers = encode_event(event)
            self.append(topics.EVENTS, int(merchant[1:]) % PARTITIONS, merchant.encode(), value, headers)
            names.append(name)
        return names

    def append(self, topic: Topic, partition: int, key: bytes, value: bytes, headers: Any = ()) -> None:
        self.cluster.append((topic.name, partition), key, value, headers, now_ms())

    def ask(self, action: str, replay_id: str = "rep_1", **fields: Any) -> None:
        value = schemas.encode(
            schemas.REPLAY_REQUEST,
            {"id": replay_id, "action": action, "requested_by": "sre", "requested_ms": now_ms(), **fields},
        )
        for partition in range(PARTITIONS):
            self.append(topics.REPLAY_REQUESTS, partition, replay_id.encode(), value)

    # What came of it

    def read(self, topic: Topic, schema: Any) -> list[dict[str, Any]]:
        return [
            schemas.decode(entry.value or b"", schema)
            for number in range(PARTITIONS)
            for entry in self.cluster.read((topic.name, number), 0, 10**9)
        ]

    def open_letters(self) -> dict[str, dict[str, Any]]:
        """The depth: the last record of each id, where it is open or acknowledged."""
        last = {letter["id"]: letter for letter in self.read(topics.DLQ, schemas.DEAD_LETTER)}
        return {name: letter for name, letter in last.items() if letter["triage"] in ("OPEN", "ACKNOWLEDGED")}

    def replayed(self) -> list[str]:
        """The keys of the deliveries that were asked for once more."""
        found = self.read(topics.DELIVERIES, schemas.DELIVERY)
        return [f"{each['event_id']} {each['subscription_id']}" for each in found if each["generation"] == NEXT]

    def progress(self, replay_id: str = "rep_1") -> list[Progress]:
        """The last word of each partition."""
        last = {}
        for number in range(PARTITIONS):
            for entry in self.cluster.read((topics.REPLAY_REQUESTS.name, number), 0, 10**9):
                fields = schemas.decode(entry.value or b"", schemas.REPLAY_REQUEST)
                if fields["action"] == "PROGRESS" and fields["id"] == replay_id:
                    last[number] = Progress(**fields["progress"])
        return list(last.values())

    def standings(self, replay_id: str = "rep_1") -> set[str]:
        progress = self.progress(replay_id)
        return {each.standing for each in progress} if len(progress) == PARTITIONS else set()

    def total(self, name: str, replay_id: str = "rep_1") -> int:
        return sum(getattr(each, name) for each in self.progress(replay_id))

    def states(self, name: str) -> dict[str, str]:
        """Where each event's delivery to a subscription stands."""
        return {event: status["state"] for event, status in self.statuses(name).items()}

    def statuses(self, name: str) -> dict[str, dict[str, Any]]:
        found = self.read(topics.DELIVERY_STATUS, schemas.DELIVERY_STATUS)
        return {status["event_id"]: status for status in found if status["subscription_id"] == name}

    def taken(self, name: str) -> list[str]:
        """The events that a merchant took, in the order they came."""
        return [post.event for post in self.posts[self.url(name)] if post.code < 300]

    async def until(self, holds: Callable[[], bool]) -> None:
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        pause_s = 0.5
        while not holds():
            assert asyncio.get_running_loop().time() < deadline_s, "it never came to that"
            await asyncio.sleep(pause_s)
            pause_s = min(1.1 * pause_s, 60)

    async def until_all(self, name: str, state: str, count: int) -> None:
        await self.until(lambda: list(self.states(name).values()) == [state] * count)

    async def until_finished(self, replay_id: str = "rep_1") -> None:
        await self.until(lambda: self.standings(replay_id) == {"FINISHED"})


def simulated(program: Callable[[], Awaitable[None]]) -> None:
    """Run a test's program on made-up time."""

    async def run() -> None:
        await program()

    simulate(run())
