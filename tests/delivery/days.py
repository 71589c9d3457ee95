"""Simulated days of deliveries from seeds: merchants that fail and lie, workers that die, and what must hold afterwards.

Run: python -m tests.delivery.days SEED | --first 0 --count 2000
"""

import argparse
import asyncio
import hashlib
import logging
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from streams.dead_letters import dead_letter
from streams.delivery.brake import Brake, BrakeRule
from streams.delivery.handler import Deliverer
from streams.delivery.state import ShardMemory, expires_ms
from streams.delivery.subscription import Subscriptions
from streams.ladder.agent import ladder_agent
from streams.ladder.rules import UNSCALED
from streams.log.agent import Agent
from streams.log.machine import Limits
from streams.log.simulated.clock import simulate
from streams.log.simulated.cluster import Cluster
from streams.log.simulated.log import Faults
from streams.log.simulated.process import Process, System
from tests.delivery.checks import why_never_over, wrong_deliveries
from tests.delivery.endpoint_checks import wrong_endpoints
from tests.delivery.left import OVER, Left
from tests.delivery.merchants import Merchants, World
from tests.delivery.subscribers import KEYRING, Subscribers, follow, load
from tests.delivery.troubles import Troubles
from topology import flow, topics

PARTITIONS, HOSTS, MERCHANTS = 3, 3, 4
MENDED_AFTER_S, QUIET_S = 7 * 86_400.0, 21 * 86_400.0
"""Eight attempts take 5 days, and in an ordered resource one event waits for the other: a week after the day all endpoints are well."""
LOOK_EVERY_S = 6 * 3_600
STORMS = (None, None, None, None, None, "error", "certificate", "refuse", "hang", "drop when asked")


@dataclass
class Day:
    """What a seed came to: the same for the same seed."""

    seed: int
    events: int = 0
    posts: int = 0
    twice: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    disabled: Counter[str] = field(default_factory=Counter)
    shown: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    trace: str = ""


class Workers:
    """What each process of the deliver agent has to itself: its table, its brake, its chance."""

    def __init__(self, cluster: Cluster, seed: int, brake_rule: BrakeRule, merchants: Merchants, skews_ms: dict[str, int]) -> None:
        self._cluster, self._seed, self._brake_rule, self._merchants, self._skews_ms = cluster, seed, brake_rule, merchants, skews_ms
        self._begun: Counter[str] = Counter()
        self._worlds: dict[Process, World] = {}

    def world(self, process: Process) -> World:
        name = process.host.name
        if process not in self._worlds:
            self._begun[name] += 1
            self._worlds[process] = World(process, f"{name}.{self._begun[name]}", self._merchants, self._skews_ms)
        return self._worlds[process]

    def agent(self, process: Process) -> Agent:
        """As streams/delivery/agent.py puts it together, with its table read before its first event."""
        world, name = self.world(process), process.host.name
        chance = random.Random(f"{self._seed} {name} {self._begun[name]}")
        subscriptions = Subscriptions(KEYRING)
        position = load(subscriptions, self._cluster, 0)
        process.run(follow(subscriptions, self._cluster, position, process, chance))
        return deliver(Deliverer(subscriptions, Brake(self._brake_rule), chance=chance), world)


def deliver(deliverer: Deliverer, world: World) -> Agent:
    return Agent(
        "deliver", flow.DELIVER.reads, flow.DELIVER.writes, topics.CHANGELOG_DELIVER, deliverer.plan, dead_letter, deliverer.perform,
        deliverer.conclude, lambda state: ShardMemory(state, world), True, expires_ms, deliverer.tick,
    )  # fmt: skip


def run_day(seed: int) -> Day:
    """Simulate one seed."""
    return simulate(day(seed))


def run_or_say_why(seed: int) -> Day:
    """Simulate one seed; a simulation that cannot go on at all has found something too."""
    try:
        return run_day(seed)
    except (RuntimeError, AssertionError) as error:
        return Day(seed, wrong=[f"{type(error).__name__}: {error}"])


async def day(seed: int) -> Day:
    chance, cluster, skews_ms = random.Random(seed), Cluster(), dict[str, int]()
    merchants = Merchants(chance)
    workers = Workers(cluster, seed, BrakeRule(merchants_least=chance.choice([2, 20, 20])), merchants, skews_ms)
    faults = Faults(abort=chance.choice([0, 0.1, 0.3]), lost_answer=chance.choice([0, 0.2]), step_ms_max=chance.choice([1, 20]))
    limits = Limits(keep_every_s=chance.choice([1, 5]), note_ends_every_s=chance.choice([60, 3_600]))
    shape = deliver(Deliverer(Subscriptions(KEYRING), Brake()), World(None, "", merchants, {}))  # type: ignore[arg-type]
    system = System(shape, PARTITIONS, HOSTS, seed, workers.world, faults, limits, cluster, workers.agent)

    def of_the_ladder(process: Process) -> World:
        return World(process, "ladder", merchants, skews_ms)

    ladder = System(ladder_agent(UNSCALED), PARTITIONS, 1, seed + 2, of_the_ladder, faults, limits, cluster)
    subscribers = Subscribers(cluster, chance)
    names = [f"m{number}" for number in range(MERCHANTS)]
    for merchant in names:
        for number in range(chance.randint(1, 2)):
            subscribers.subscribe(merchant, number)
    for host in (*system.hosts[: chance.choice([2, 3])], *ladder.hosts):
        host.start()
    troubles = Troubles(
        system, ladder, subscribers, merchants, chance, skews_ms, names, chance.choice(STORMS), clocks_step=chance.random() < 0.2
    )
    await troubles.day()
    left = Left(cluster, PARTITIONS)
    stuck = await until_all_over(left, merchants)
    return judged(seed, troubles, left, stuck)


async def until_all_over(left: Left, merchants: Merchants) -> bool:
    """Look now and then, until everything is over or may wait for ever; whether that never comes."""
    loop = asyncio.get_running_loop()
    ended_s = loop.time()
    while loop.time() < ended_s + QUIET_S:
        await asyncio.sleep(LOOK_EVERY_S)
        if loop.time() > ended_s + MENDED_AFTER_S:
            merchants.behaviour.clear()
        left.read_on()
        if all(last["state"] in OVER or why_never_over(last, left) is None for last in left.last().values()):
            return False
    return True


def judged(seed: int, troubles: Troubles, left: Left, stuck: bool) -> Day:
    report = Day(seed, len(left.events), len(troubles.merchants.posts), troubles=troubles.told, seen=troubles.seen)
    posts, struck = troubles.merchants.posts, troubles.workers_struck_ms
    skew_ms = max(troubles.skews_seen_ms) - min(troubles.skews_seen_ms)
    report.wrong += wrong_deliveries(
        left, posts, struck, 2 * skew_ms
    )  # a clock may be set between an attempt and its end, and then the ladder's
    report.wrong += wrong_endpoints(left, posts, struck, skew_ms)
    if stuck:
        report.wrong.append("stuck: not everything was ever over")
    report.shown = troubles.merchants.shown
    attempts = 0
    for last in left.last().values():
        report.ends[last["state"]] += 1
        attempts += len(last["attempts"])
    report.twice = len(posts) - attempts
    report.ends.update(f"DLQ {letter['reason']}" for letter in left.letters)
    report.waits.update(status["waits_for"] for status in left.in_order if status["waits_for"] is not None)
    report.disabled.update(each.fields["state_reason"] for name in left.revisions for each in left.ever(name) if each.state == "DISABLED")
    traced = repr([(post.began_ms, post.worker, post.url, post.event, post.result) for post in posts]) + repr(left.in_order)
    report.trace = hashlib.sha256(traced.encode()).hexdigest()
    return report


def told(report: Day) -> str:
    """A day that went wrong, and how to see it again."""
    return f"seed {report.seed}: {'; '.join(report.wrong[:5])}. Replay it: python -m tests.delivery.days {report.seed}"


def silence() -> None:
    """A simulated worker says as much as a real one, and a thousand days have ten thousand of them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", nargs="*", type=int, help="days to simulate again, told in full")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="so many days from the first one on")
    asked = parser.parse_args(arguments)
    silence()
    wrong = 0
    for seed in asked.seed:
        report = run_day(seed)
        print(report)
        wrong += bool(report.wrong)
    for seed in range(asked.first, asked.first + asked.count):
        report = run_or_say_why(seed)
        if report.wrong:
            wrong += 1
            print(told(report), flush=True)
    if asked.count:
        print(f"{asked.count} days from seed {asked.first}, {wrong} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
