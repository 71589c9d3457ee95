"""A simulated day of deliveries: endpoints that fail in their own ways, workers that die, and what must hold afterwards."""

import asyncio
import hashlib
import itertools
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import orjson

import schemas
from schemas.event import Event
from schemas.events import encode_event
from streams.dead_letters import dead_letter
from streams.delivery.brake import Brake
from streams.delivery.gate import Gate
from streams.delivery.handler import Deliverer
from streams.delivery.results import Answer, Failure, Result
from streams.delivery.sealing import Keyring
from streams.delivery.state import ShardMemory, expires_ms
from streams.delivery.subscription import Subscriptions, changed, encoded
from streams.delivery.subscription_changes import NewSecret, Wanted, created, sealed
from streams.ladder.agent import ladder_agent
from streams.ladder.rules import UNSCALED
from streams.log.agent import Agent
from streams.log.machine import Limits
from streams.log.simulated.clock import simulate
from streams.log.simulated.log import Faults
from streams.log.simulated.process import Process, System
from topology import flow, topics

START_MS = 1_700_000_000_000
PARTITIONS, HOSTS, MERCHANTS, RESOURCES = 2, 2, 4, 3
DAY_S, QUIET_S = 86_400.0, 10 * 86_400.0
KEYRING = Keyring({"k": bytes(32)})
Behaviour = str
BEHAVIOURS: tuple[Behaviour, ...] = ("ok", "ok", "ok", "error", "flaky", "slow", "hang", "refuse", "throttle")


def now_ms() -> int:
    return START_MS + int(asyncio.get_running_loop().time() * 1000)


@dataclass
class Endpoint:
    """A merchant's server: how it behaves now, and what reached it."""

    behaviour: Behaviour = "ok"
    seen: list[tuple[int, str, bytes, int]] = field(default_factory=list)
    """When, which event, its body's hash, and what was answered (0: nothing)."""


@dataclass
class Day:
    """What a seed came to."""

    seed: int
    events: int = 0
    posts: int = 0
    delivered: int = 0
    dead: int = 0
    cancelled: int = 0
    wrong: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Endpoints:
    """Where the client posts to."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.by_url: dict[str, Endpoint] = defaultdict(Endpoint)

    async def answer(self, url: str, headers: bytes, body: bytes, timeout_s: float) -> Result:
        endpoint = self.by_url[url]
        event = orjson.loads(body)["id"]
        place = len(endpoint.seen)
        endpoint.seen.append((now_ms(), event, hashlib.sha256(body).digest(), 0))
        took_s, result = self._result(endpoint.behaviour, timeout_s)
        if isinstance(result, Failure) and result.stage == "connect":
            endpoint.seen.pop()
        await asyncio.sleep(took_s)
        if isinstance(result, Answer):
            at, name, digest, _ = endpoint.seen[place]
            endpoint.seen[place] = (at, name, digest, result.code)
        return result

    def _result(self, behaviour: Behaviour, timeout_s: float) -> tuple[float, Result]:
        quick_s = self.chance.uniform(0.001, 0.2)
        quick_ms = int(quick_s * 1000)
        match behaviour:
            case "error":
                return quick_s, Answer(500, quick_ms, {}, b"")
            case "flaky":
                return quick_s, Answer(self.chance.choice([200, 500]), quick_ms, {}, b"")
            case "slow":
                return 3.0, Answer(200, 3_000, {}, b"")
            case "hang":
                return timeout_s, Failure("answer", "", int(timeout_s * 1000), timed_out=True, ambiguous=True)
            case "refuse":
                return 0.001, Failure("connect", "refused", 1)
            case "throttle":
                return quick_s, Answer(429, quick_ms, {"retry-after": "30"}, b"")
            case "gone":
                return quick_s, Answer(410, quick_ms, {}, b"")
        return quick_s, Answer(200, quick_ms, {}, b"")


class World:
    """One process's: what it begins ends with it."""

    def __init__(self, process: Process, endpoints: Endpoints) -> None:
        self._process, self._endpoints = process, endpoints
        self.client, self.gate = self, Gate(64)

    def now_ms(self) -> int:
        return now_ms()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._process.gate.passed()

    async def post(self, url: str, headers: bytes, body: bytes, answer_timeout_s: float, connect_timeout_s: float | None = None) -> Any:
        await self._process.gate.passed()
        result = await self._endpoints.answer(url, headers, body, answer_timeout_s)
        await self._process.gate.passed()
        return result


def run_day(seed: int) -> Day:
    """Simulate one seed."""
    return simulate(day(seed))


async def day(seed: int) -> Day:
    chance, report = random.Random(seed), Day(seed)
    subscriptions = Subscriptions(KEYRING)
    deliverer = Deliverer(subscriptions, Brake(), chance=random.Random(seed + 1))
    clock = type("Clock", (), {"now_ms": staticmethod(now_ms)})()
    agent = Agent(
        "deliver", flow.DELIVER.reads, flow.DELIVER.writes, topics.CHANGELOG_DELIVER, deliverer.plan, dead_letter, deliverer.perform,
        deliverer.conclude, lambda state: ShardMemory(state, clock), True, expires_ms, deliverer.tick,
    )  # fmt: skip
    endpoints = Endpoints(chance)
    faults = Faults(abort=chance.choice([0, 0.1]), lost_answer=chance.choice([0, 0.2]), step_ms_max=chance.choice([1, 20]))
    limits = Limits(keep_every_s=chance.choice([20, 60]), note_ends_every_s=3_600)
    system = System(agent, PARTITIONS, HOSTS, seed, lambda process: World(process, endpoints), faults, limits)
    ladder = System(
        ladder_agent(UNSCALED), PARTITIONS, 1, seed + 2, lambda process: World(process, endpoints), faults, limits, system.cluster
    )
    subscribed = subscribe(system, subscriptions, chance)
    for host in (*system.hosts, *ladder.hosts):
        host.start()
    following = asyncio.create_task(follow(system, subscriptions))
    sent = await events_and_troubles(system, ladder, subscriptions, endpoints, chance, report)
    await until_all_over(system, sent, subscribed, report)
    following.cancel()
    check(system, subscriptions, endpoints, sent, report)
    return report


def subscribe(system: System, subscriptions: Subscriptions, chance: random.Random) -> list[str]:
    names = []
    for merchant in range(MERCHANTS):
        for number in range(chance.randint(1, 2)):
            name = f"sub_{merchant}{number}".ljust(26, "0")
            secret = sealed(NewSecret(id="sec_1", algorithm="hmac-sha256", text="whsec_" + "a" * 32), name, KEYRING, bytes(12), START_MS)
            wanted = Wanted(
                url=f"https://m{merchant}.example/{name}", event_types=chance.choice([("*",), ("payin.*",)]),
                ordered=chance.random() < 0.5, rate_per_s=chance.choice([0.05, 1.0, 100.0]), burst=chance.choice([1, 20]),
                profile=chance.choice(["standard", "simpaisa", "core", "jitter", "wf"]),
            )  # fmt: skip
            fields = created(name, f"m{merchant}", wanted, secret, START_MS, allow_loopback=False, disabled=False)
            write_subscription(system, subscriptions, fields)
            names.append(name)
    return names


def write_subscription(system: System, subscriptions: Subscriptions, fields: dict[str, Any]) -> None:
    value = encoded(fields)
    system.cluster.append((topics.SUBSCRIPTIONS.name, 0), fields["id"].encode(), value, (), now_ms())
    subscriptions.apply(fields["id"].encode(), value)


async def follow(system: System, subscriptions: Subscriptions) -> None:
    """Keep the table current, a moment late."""
    place, position = (topics.SUBSCRIPTIONS.name, 0), 0
    while True:
        for entry in system.cluster.read(place, position, 1_000):
            subscriptions.apply(entry.key, entry.value)
            position = entry.offset + 1
        await asyncio.sleep(10)


async def events_and_troubles(
    system: System, ladder: System, subscriptions: Subscriptions, endpoints: Endpoints, chance: random.Random, report: Day
) -> dict[tuple[str, str], Event]:
    """A day: events come in bursts, some twice; endpoints change their ways; workers die; subscriptions are paused and resumed."""
    sent: dict[tuple[str, str], Event] = {}
    urls = [each.url for each in subscriptions.by_id.values()]
    moments = sorted(chance.uniform(0, DAY_S) for _ in range(chance.randint(20, 60)))
    for moment in moments:
        await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))
        for _ in range(chance.choice([1, 1, 5])):
            event = make_event(len(sent), chance)
            sent[event.id, event.merchant] = event
            for _ in range(chance.choice([1, 1, 1, 2])):
                value, headers = encode_event(event)
                place = (topics.EVENTS.name, int(event.merchant[1:]) % PARTITIONS)
                system.cluster.append(place, event.merchant.encode(), value, headers, now_ms())
        await trouble(system, ladder, subscriptions, endpoints, urls, chance, report)
    await asyncio.sleep(60)
    for endpoint in endpoints.by_url.values():
        endpoint.behaviour = "ok"
    for subscription in list(subscriptions.by_id.values()):
        if subscription.state == "PAUSED":
            write_subscription(system, subscriptions, changed(subscription.fields, now_ms(), state="ACTIVE"))
    report.events = len(sent)
    return sent


def make_event(number: int, chance: random.Random) -> Event:
    merchant = f"m{chance.randrange(MERCHANTS)}"
    return Event(
        id=f"evt_{number:04}", type=chance.choice(["payin.success", "payin.failed", "payout.done"]), source="/core", merchant=merchant,
        time_ms=now_ms(), data=orjson.dumps({"n": number}), resource=f"r{chance.randrange(RESOURCES)}",
    )  # fmt: skip


async def trouble(
    system: System, ladder: System, subscriptions: Subscriptions, endpoints: Endpoints, urls: list[str], chance: random.Random, report: Day
) -> None:
    what = chance.choice(["none", "endpoint", "endpoint", "kill", "kill ladder", "freeze", "pause", "resume"])
    report.faults.append(f"{asyncio.get_running_loop().time():.0f} {what}")
    match what:
        case "endpoint":
            endpoints.by_url[chance.choice(urls)].behaviour = chance.choice(BEHAVIOURS)
        case "kill":
            await asyncio.sleep(chance.uniform(0, 0.5))
            system.kill(chance.choice(system.hosts), chance.uniform(0.1, 20))
        case "kill ladder":
            ladder.kill(ladder.hosts[0], chance.uniform(0.1, 20))
        case "freeze":
            await system.freeze(chance.choice(system.hosts), chance.uniform(0.1, 20))
        case "pause" | "resume":
            subscription = chance.choice(list(subscriptions.by_id.values()))
            wanted = "PAUSED" if what == "pause" else "ACTIVE"
            if subscription.state not in ("DISABLED", wanted):
                write_subscription(system, subscriptions, changed(subscription.fields, now_ms(), state=wanted))


def statuses(system: System) -> dict[tuple[str, str], dict[str, Any]]:
    """The last word on each delivery, by event and subscription."""
    found = {}
    for number in range(PARTITIONS):
        for entry in system.cluster.read((topics.DELIVERY_STATUS.name, number), 0, 10**9):
            status = schemas.decode(entry.value or b"", schemas.DELIVERY_STATUS)
            found[status["event_id"], status["subscription_id"]] = status
    return found


OVER = ("DELIVERED", "DLQ", "CANCELLED")


async def until_all_over(system: System, sent: Any, subscribed: list[str], report: Day) -> None:
    deadline_s = asyncio.get_running_loop().time() + QUIET_S
    while asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(3_600)
        found = statuses(system)
        if found and all(status["state"] in OVER for status in found.values()):
            return
    open_ones = {key: (status["state"], status["waits_for"]) for key, status in statuses(system).items() if status["state"] not in OVER}
    report.wrong.append(f"never over: {open_ones}")


def check(system: System, subscriptions: Subscriptions, endpoints: Endpoints, sent: dict[tuple[str, str], Event], report: Day) -> None:
    found = statuses(system)
    for event in sent.values():
        for subscription in subscriptions.of(event.merchant):
            if not subscription.wants(event):
                continue
            status = found.pop((event.id, subscription.id), None)
            if status is None:
                if subscription.state != "DISABLED":
                    report.wrong.append(f"lost: {event.id} for {subscription.id}")
                continue
            check_delivery(event, subscription, status, endpoints.by_url[subscription.url], report)
    report.wrong += [f"not wanted: {key}" for key in found]
    for subscription in subscriptions.by_id.values():
        if subscription.ordered and subscription.state != "DISABLED":
            check_order(subscription, statuses(system), report)
    letters = Counter(
        (letter["event_id"], letter["subscription_id"])
        for number in range(PARTITIONS)
        for entry in system.cluster.read((topics.DLQ.name, number), 0, 10**9)
        for letter in [schemas.decode(entry.value or b"", schemas.DEAD_LETTER)]
    )
    report.wrong += [f"dead-lettered {times} times: {key}" for key, times in letters.items() if times > 1]
    if sum(letters.values()) != report.dead:
        report.wrong.append(f"{report.dead} are dead and {sum(letters.values())} are in the DLQ")


def check_delivery(event: Event, subscription: Any, status: dict[str, Any], endpoint: Endpoint, report: Day) -> None:
    seen = [post for post in endpoint.seen if post[1] == event.id]
    report.posts += len(seen)
    if len({digest for _, _, digest, _ in seen}) > 1:
        report.wrong.append(f"{event.id}: the body changed between attempts")
    taken = [post for post in seen if 200 <= post[3] < 300]
    attempts = status["attempts"]
    if len(attempts) > subscription.policy.schedule.attempts_max:
        report.wrong.append(f"{event.id}: {len(attempts)} attempts of {subscription.policy.schedule.attempts_max}")
    for number, (before, after) in enumerate(itertools.pairwise(attempts), start=1):
        least_ms = subscription.policy.schedule.delay_ms(number, 0.0)
        if after["at_ms"] - before["at_ms"] - before["duration_ms"] < least_ms - 1:
            report.wrong.append(f"{event.id}: attempt {number + 1} was early")
    if status["state"] == "DELIVERED":
        report.delivered += 1
        if not taken:
            report.wrong.append(f"{event.id}: said to be delivered, and nobody took it")
    elif status["state"] == "DLQ":
        report.dead += 1
    else:
        report.cancelled += 1
        if subscription.state != "DISABLED":
            report.wrong.append(f"{event.id}: {status['state']} though {subscription.id} is {subscription.state}")


def check_order(subscription: Any, found: dict[tuple[str, str], dict[str, Any]], report: Day) -> None:
    """Each resource's events were numbered in the order of the log, without a gap, and each began after the one before was over."""
    by_resource: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (_, name), status in found.items():
        if name == subscription.id and status["resource"] is not None:
            by_resource[status["resource"]].append(status)
    for resource, ones in by_resource.items():
        ones.sort(key=lambda status: status["origin"]["offset"])
        numbers = [status["sequence"] for status in ones]
        if numbers != list(range(1, len(ones) + 1)):
            report.wrong.append(f"{subscription.id} {resource}: numbered {numbers}")
        for before, after in itertools.pairwise(ones):
            if before["attempts"] and after["attempts"] and after["attempts"][0]["at_ms"] < before["attempts"][-1]["at_ms"]:
                report.wrong.append(f"{subscription.id} {resource}: {after['event_id']} overtook {before['event_id']}")
