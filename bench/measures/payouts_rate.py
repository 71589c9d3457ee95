"""How many payouts a second one coordinator takes from their command to their end; beside it, its rules alone, in memory."""

import itertools
import time

from bench.committed import Group
from bench.cpu import cpu_s
from bench.ground import BenchmarkError, Ground
from bench.payouts import GROUP, OPENING, Commands, opened, opening, submission, wait_until_open, workers
from bench.registry import Measured, benchmark, median_of
from streams.log.records import Record
from streams.log.simulated.log import SimulatedStore
from streams.log.state import State
from streams.payouts.beneficiaries import Beneficiaries
from streams.payouts.channels.handler import Called, Job, conclude
from streams.payouts.channels.port import Answer, task_in
from streams.payouts.handler import Payouts
from streams.payouts.policy import Rules
from topology import topics
from topology.topics import Topic

PAYOUTS, IN_MEMORY = 20_000, 4_000
TIMEOUT_S = 120


@benchmark(name="payouts_per_s", unit="payouts/s", target=1_500, better="higher")
def payouts_per_s(ground: Ground) -> Measured:
    """Measure with every command waiting, from the first that is taken to the last payout's end."""

    def once(turn: int) -> Measured:
        return Measured(through_kafka(ground.part(str(turn))), in_memory())

    return median_of(ground, once, ",.0f")


def through_kafka(ground: Ground) -> float:
    commands = opened(ground)
    replies = Group(ground, ground.prefix + GROUP, ground.name(topics.PAYOUT_REPLIES))
    with workers(ground) as running:
        wait_until_open(commands, running)
        feed = Commands(ground)
        used_s = [cpu_s(process.process.pid) for process in running]
        began_s = time.perf_counter()
        feed.send(submission(number) for number in range(PAYOUTS))
        deadline_s, at_once = began_s + TIMEOUT_S, 0
        while (seen := replies.see()).records < PAYOUTS:
            at_once = max(at_once, commands.see().records - OPENING - seen.records)
            for process in running:
                process.check()
            if seen.at_s > deadline_s:
                raise BenchmarkError(f"waiting for {PAYOUTS} payouts: {seen.records} ended in {TIMEOUT_S} s. Logs: {ground.folder}")
            time.sleep(0.05)
        each = [(cpu_s(process.process.pid) - before) * 1_000 / PAYOUTS for process, before in zip(running, used_s, strict=True)]
    ground.tell(f"CPU-s per 1,000: coordinator {each[0]:.2f}, channels {each[1]:.2f}; {at_once:,} under way at most")
    for group in (commands, replies):
        group.close()
    return PAYOUTS / (seen.at_s - began_s)


def in_memory() -> float:
    """The coordinator's rules, its state in a dictionary, and a reply to each task at once."""
    store, offsets = SimulatedStore(), itertools.count()
    agent = Payouts(Beneficiaries(), Rules())

    def plan(topic: Topic, key: bytes | None, value: bytes | None) -> list[Record]:
        now_ms = time.time_ns() // 1_000_000
        outcome = agent.plan(Record(topic, 0, next(offsets), key, value, (), now_ms), State(store), now_ms)
        store.apply(dict(outcome.changes), 0)
        return [
            Record(write.topic, 0, 0, write.key, write.value, (), now_ms) for write in outcome.writes if write.topic is topics.PAYOUT_TASKS
        ]

    for key, value in opening():
        plan(topics.PAYOUT_COMMANDS, key, value)
    commands, took_s = [submission(number) for number in range(IN_MEMORY)], 0.0
    for key, value in commands:
        began_s = time.perf_counter()
        [task] = plan(topics.PAYOUT_COMMANDS, key, value)
        took_s += time.perf_counter() - began_s
        [reply] = conclude(Job(task_in(task), task.key, task.value), Called(Answer("SUCCESS"), 0, 0), State(store), 0).writes
        began_s = time.perf_counter()
        plan(reply.topic, reply.key, reply.value)
        took_s += time.perf_counter() - began_s
    return IN_MEMORY / took_s
