"""What happens on a simulated day: events and their duplicates, workers that die, freeze, join and leave, and people who change things."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import orjson

from schemas.event import Event
from schemas.events import encode_event
from streams.delivery.subscription_changes import Wanted
from streams.log.simulated.cluster import Cluster, brokers_now_ms
from streams.log.simulated.process import SESSION_S, Host, System
from tests.delivery.merchants import BEHAVIOURS, OFTEN, Merchants, clock_of
from tests.delivery.subscribers import Subscribers
from topology import topics

DAY_S, STORM_S = 86_400.0, 30 * 3_600.0
AWAY_S_MAX = 1_800.0
RESOURCES = 3


def place_of(merchant: str, partitions: int) -> tuple[str, int]:
    return topics.EVENTS.name, int(merchant[1:]) % partitions


@dataclass
class Troubles:
    """Everything that a day does to the pipeline, and when it did what no delivery may suffer from."""

    system: System
    ladder: System
    subscribers: Subscribers
    merchants: Merchants
    chance: random.Random
    skews_ms: dict[str, int]
    merchant_names: list[str]
    storm: str | None  # how one endpoint behaves all day long
    clocks_step: bool
    sent: list[Event] = field(default_factory=list)
    workers_struck_ms: list[tuple[int, int]] = field(default_factory=list)
    skews_seen_ms: set[int] = field(default_factory=lambda: {0})
    all_skewed_ms: int = 0
    told: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def cluster(self) -> Cluster:
        return self.system.cluster

    async def day(self) -> None:
        """Bursts of events at random moments, each followed by some trouble; then everybody mends what is theirs, or does not."""
        chance = self.chance
        stormy = self.subscribers.names[0] if self.storm else None
        if stormy is not None and self.storm is not None:
            self.merchants.behaviour[stormy] = self.storm
        lasts_s = STORM_S if self.storm else DAY_S
        moments = sorted(chance.uniform(0, lasts_s) for _ in range(chance.randint(20, 50) + (15 if self.storm else 0)))
        for moment in moments:
            await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))
            for _ in range(chance.choice([1, 1, 5])):
                self.send(chance.choice(self.merchant_names))
            if stormy is not None:
                self.send(self.merchant_names[0])
            await self.strike(stormy)
        await asyncio.sleep(60)
        if chance.random() < 0.7:
            self.merchants.behaviour.clear()
        for name in self.subscribers.names:
            if chance.random() < 0.8:
                self.subscribers.turn(name, "resume")

    # Events

    def send(self, merchant: str) -> None:
        """A new event, or several copies of one."""
        chance = self.chance
        event = Event(
            id=f"evt_{len(self.sent):04}",
            type=chance.choice(["payin.success", "payin.failed", "payout.done"]),
            source="/core",
            merchant=merchant,
            time_ms=brokers_now_ms(),
            data=orjson.dumps({"n": len(self.sent), "country": chance.choice(["PK", "AE", "GB"])}),
            resource=chance.choice([None, *(f"r{n}" for n in range(RESOURCES))]),
        )
        self.sent.append(event)
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            self.write(event)

    def write(self, event: Event) -> None:
        value, headers = encode_event(event)
        self.cluster.append(place_of(event.merchant, self.system.group.partitions), event.merchant.encode(), value, headers, event.time_ms)

    # Troubles

    async def strike(self, stormy: str | None) -> None:
        """One trouble, or none."""
        what = self.chance.choices(list(TROUBLES), [weight for weight, _ in TROUBLES.values()])[0]
        if what == "clock" and not self.clocks_step:
            return
        self.seen[what] += 1
        self.told.append(f"{asyncio.get_running_loop().time():.0f} {what}")
        names = [name for name in self.subscribers.names if name != stormy]
        await TROUBLES[what][1](self, self.chance.choice(names or self.subscribers.names))

    def struck(self, seconds: float) -> None:
        """For so long from now, and until the group is itself again, a worker may do twice what it did."""
        now_ms = brokers_now_ms()
        self.workers_struck_ms.append((now_ms, now_ms + int((seconds + 2 * SESSION_S) * 1_000)))

    async def endpoint(self, name: str) -> None:
        rare = self.chance.random() < 0.3
        self.merchants.behaviour[name] = self.chance.choice(list(BEHAVIOURS) if rare else OFTEN)

    async def kill(self, name: str) -> None:
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        away_s = self.chance.choice([self.chance.uniform(0.1, 5), self.chance.uniform(11, 60)])
        self.struck(away_s)
        self.system.kill(self.chance.choice(self.system.hosts), away_s)

    async def kill_ladder(self, name: str) -> None:
        self.ladder.kill(self.ladder.hosts[0], self.chance.uniform(0.1, 30))

    async def freeze(self, name: str) -> None:
        seconds = self.chance.choice([self.chance.uniform(0.1, 5), self.chance.uniform(10.5, 30)])
        self.struck(seconds)
        await self.system.freeze(self.chance.choice(self.system.hosts), seconds)

    async def scale(self, name: str) -> None:
        """A worker leaves for a while, or one that was away comes."""
        host = self.chance.choice(self.system.hosts)
        self.struck(self.chance.uniform(0, 5))
        if is_away(host):
            if host.name not in self.system.group.members:
                host.start()
        elif sum(not is_away(each) for each in self.system.hosts) > 1:
            asyncio.get_running_loop().create_task(self._leave(host))

    async def _leave(self, host: Host) -> None:
        await self.system.leave(host, self.chance.choice([0.0, 2.0, 30.0]))
        self.struck(0)
        process = host.process
        await asyncio.sleep(self.chance.uniform(1, AWAY_S_MAX))
        if host.process is process and is_away(host):
            self.struck(0)
            host.start()

    async def step_clock(self, name: str) -> None:
        """A worker's clock is set by a little, or all of them by a lot; they may be set right again.

        By a lot only together, and only back: where the ladder is an hour ahead of a worker, what that one throttles is due at once
        for the ladder and not yet for the worker, and goes round between them until both agree, which takes millions of steps.
        """
        hosts = [*self.system.hosts, *self.ladder.hosts]
        if self.chance.random() < 0.3:
            self.all_skewed_ms = self.chance.choice([0, -3_600_000])
            self.skews_ms.update((clock_of(host), self.all_skewed_ms) for host in hosts)
        else:
            self.skews_ms[clock_of(self.chance.choice(hosts))] = self.all_skewed_ms + self.chance.choice([0, -5_000, 5_000])
        self.skews_seen_ms.update(self.skews_ms.values())

    async def pause(self, name: str) -> None:
        self.subscribers.turn(name, "pause")

    async def resume(self, name: str) -> None:
        self.subscribers.turn(name, "resume")

    async def disable(self, name: str) -> None:
        self.subscribers.turn(name, "disable")

    async def enable(self, name: str) -> None:
        for each in self.subscribers.names:
            self.subscribers.turn(each, "enable")

    async def delete(self, name: str) -> None:
        self.subscribers.delete(name)

    async def move(self, name: str) -> None:
        merchant = name[4:6]
        self.subscribers.change(name, Wanted(url=f"https://{merchant}.example/{name}/{self.chance.randint(2, 99)}"))

    async def repace(self, name: str) -> None:
        self.subscribers.change(name, Wanted(rate_per_s=self.chance.choice([0.05, 1.0, 100.0]), burst=self.chance.choice([1, 20])))

    async def reorder(self, name: str) -> None:
        self.subscribers.change(name, Wanted(ordered=self.chance.random() < 0.5))

    async def repeat(self, name: str) -> None:
        """A producer sends again what it sent long ago."""
        self.write(self.chance.choice(self.sent))

    async def nothing(self, name: str) -> None:
        return


def is_away(host: Host) -> bool:
    return host.process is None or host.process.gate.dead


Trouble = Callable[[Troubles, str], Coroutine[Any, Any, None]]
TROUBLES: dict[str, tuple[int, Trouble]] = {
    "nothing": (6, Troubles.nothing),
    "endpoint": (12, Troubles.endpoint),
    "kill": (4, Troubles.kill),
    "kill ladder": (2, Troubles.kill_ladder),
    "freeze": (3, Troubles.freeze),
    "scale": (3, Troubles.scale),
    "clock": (3, Troubles.step_clock),
    "pause": (2, Troubles.pause),
    "resume": (3, Troubles.resume),
    "disable": (1, Troubles.disable),
    "enable": (1, Troubles.enable),
    "delete": (1, Troubles.delete),
    "move": (1, Troubles.move),
    "repace": (1, Troubles.repace),
    "reorder": (1, Troubles.reorder),
    "repeat": (3, Troubles.repeat),
}
"""Each with its weight."""
