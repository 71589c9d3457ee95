"""Drains a topic of events through one worker or several, and watches how fast, at what cost, and whether all of it arrived."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

import schemas
from bench.committed import Group
from bench.cpu import cpu_s, listener_of
from bench.ground import PARTITIONS, BenchmarkError, Ground, Process
from bench.merchants import MERCHANTS, TOPICS, Events, Sink, subscribe
from topology import flow, topics

GROUP = f"hookline-{flow.DELIVER.name}"
ASK_EVERY_S = 0.05
DRAIN_TIMEOUT_S = 180
PUT_OFF_SHARE_MAX = 0.01
READ_MAX, READ_S, READ_TIMEOUT_S = 5_000, 0.5, 30


@dataclass(frozen=True)
class Sample:
    """How far it was at a moment, and what each had used until then."""

    at_s: float
    events: int
    worker_cpu_s: float
    broker_cpu_s: float
    sink_cpu_s: float


@dataclass(frozen=True)
class Drained:
    """What lay between two moments."""

    began: Sample
    ended: Sample

    @property
    def deliveries(self) -> int:
        return self.ended.events - self.began.events

    @property
    def per_s(self) -> float:
        return self.deliveries / (self.ended.at_s - self.began.at_s)

    def per_1000(self, used_s: float) -> float:
        return used_s * 1_000 / self.deliveries

    @property
    def worker_cpu_s_per_1000(self) -> float:
        return self.per_1000(self.ended.worker_cpu_s - self.began.worker_cpu_s)

    @property
    def broker_cpu_s_per_1000(self) -> float:
        return self.per_1000(self.ended.broker_cpu_s - self.began.broker_cpu_s)

    @property
    def sink_cpu_s_per_1000(self) -> float:
        return self.per_1000(self.ended.sink_cpu_s - self.began.sink_cpu_s)

    def __str__(self) -> str:
        return (
            f"{self.per_s:,.0f} deliveries/s; CPU-s per 1,000: worker {self.worker_cpu_s_per_1000:.3f}, "
            f"broker {self.broker_cpu_s_per_1000:.3f}, sink {self.sink_cpu_s_per_1000:.3f}"
        )


def prepare(ground: Ground, sink: Sink, behaviours: Sequence[str] = ("ok",) * MERCHANTS) -> None:
    """Make what a worker needs before its first event."""
    ground.make([*TOPICS, topics.CHANGELOG_DELIVER, topics.CHANGELOG_LADDER])
    subscribe(ground, sink, behaviours)


@contextmanager
def worker(ground: Ground, sink: Sink, name: str = "worker", roles: str = flow.DELIVER.name) -> Iterator[Process]:
    """Run a worker that delivers to this sink."""
    arguments = ["--folder", str(ground.folder / name), "--roles", roles]
    if sink.authority is not None:
        arguments += ["--authority", str(sink.authority)]
    with ground.process(name, "bench.delivery_worker", *arguments) as running:
        yield running


def drain(ground: Ground, sink: Sink, events: int, workers: int = 1, between: tuple[float, float] = (0, 1)) -> Drained:
    """Fill the events, start the workers, and watch what lies between two shares of the events: from the first commit to the last."""
    prepare(ground, sink)
    publisher = Events(ground)
    for number in range(events):
        publisher.publish(number, number % MERCHANTS)
    publisher.flush()
    group = Group(ground, ground.prefix + GROUP, ground.name(topics.EVENTS))
    with ExitStack() as stack:
        running = [stack.enter_context(worker(ground, sink, f"worker-{number}")) for number in range(workers)]
        samples = list(watch(ground, group, sink, running, events))
    group.close()
    require_delivered(ground, events)
    began = next(each for each in samples if each.events > events * between[0])
    return Drained(began, next(each for each in samples if each.events >= events * between[1]))


def watch(ground: Ground, group: Group, sink: Sink, workers: Sequence[Process], events: int) -> Iterator[Sample]:
    """Look at it again and again until everything is committed."""
    broker, deadline_s, done = listener_of(ground.bootstrap), time.perf_counter() + DRAIN_TIMEOUT_S, 0
    while done < events:
        for each in workers:
            each.check()
        done = group.see().records
        now_s = time.perf_counter()
        yield Sample(now_s, done, sum(cpu_s(each.process.pid) for each in workers), cpu_s(broker), cpu_s(sink.pid))
        if now_s > deadline_s:
            raise BenchmarkError(f"waiting for {events} delivered events: {done} came in {DRAIN_TIMEOUT_S} s. Logs: {ground.folder}")
        time.sleep(ASK_EVERY_S)


def require_delivered(ground: Ground, events: int) -> None:
    """Refuse a figure of a run that did not deliver each event once, but for the few that found a fresh lane full and ride the ladder."""
    states: Counter[str] = Counter()
    for value in all_values(ground, ground.name(topics.DELIVERY_STATUS)):
        states[schemas.decode(value, schemas.DELIVERY_STATUS)["state"]] += 1
    delivered, put_off = states["DELIVERED"], states["PENDING"]
    if delivered + put_off != events or states.total() != events or put_off > events * PUT_OFF_SHARE_MAX:
        raise BenchmarkError(f"draining {events} events: their statuses are {dict(states)}, and all but a few were to be DELIVERED once")


def all_values(ground: Ground, topic: str) -> Iterator[bytes]:
    """Read all that is committed in a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": ground.bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    ended, deadline_s = 0, time.perf_counter() + READ_TIMEOUT_S
    while ended < PARTITIONS:
        for message in consumer.consume(READ_MAX, READ_S):
            if message.error() is not None:
                ended += 1
            else:
                yield message.value() or b""
        if time.perf_counter() > deadline_s:
            raise BenchmarkError(f"reading {topic} to its end took more than {READ_TIMEOUT_S} s. Is the broker well?")
    consumer.close()
