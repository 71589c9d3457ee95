"""Records that wait on real Kafka: workers with the ladder alone, records sent to the rungs, and what comes back of them."""

import json
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.ground import PARTITIONS, BenchmarkError, Ground, Process
from streams.ladder.handler import DUE, RETURN
from streams.ladder.rules import UNSCALED, Ladder
from topology import flow
from topology.topics import DELIVERIES, Topic

VALUE = b"v" * 600
"""As much as a delivery usually has."""
SEND_TIMEOUT_S = 120


class Returned(NamedTuple):
    """One record that came back, with the broker's time of its return."""

    key: bytes
    due_ms: int
    back_ms: int

    @property
    def late_ms(self) -> int:
        return self.back_ms - self.due_ms


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def make_topics(ground: Ground) -> None:
    """All that the ladder touches; the return topic with the broker's time, by which lateness is told."""
    assert flow.LADDER.changelog is not None
    named = dict.fromkeys((*flow.LADDER.reads, *flow.LADDER.writes, flow.LADDER.changelog))
    ground.make([replace(topic, timestamps="LogAppendTime") if topic is DELIVERIES else topic for topic in named])


@contextmanager
def working(ground: Ground, name: str, scale: float = 1.0) -> Iterator[Process]:
    """A worker, from its first assignment on."""
    arguments = ("--folder", str(ground.folder / name), "--scale", str(scale))
    with ground.process(name, "tests.ladder.worker", *arguments) as worker:
        assert worker.process.stdout is not None
        if not worker.process.stdout.readline():
            worker.answer(10)
            raise BenchmarkError(f"starting {name}: it ended before it was at work. Its log is {worker.log}")
        yield worker


class Sender:
    """Sends records to the rung that the rules choose, numbered, to each partition in turn."""

    def __init__(self, ground: Ground, ladder: Ladder = UNSCALED) -> None:
        self.sent = 0
        self._ground, self._ladder = ground, ladder
        self._producer = Producer({"bootstrap.servers": ground.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})

    def send(self, due_ms: int) -> None:
        self.send_to(self._ladder.next_hop(due_ms, now_ms()) or DELIVERIES, due_ms)

    def send_to(self, topic: Topic, due_ms: int) -> None:
        headers: list[Any] = [(DUE, b"%d" % due_ms), (RETURN, DELIVERIES.name.encode())]
        while True:
            try:
                self._producer.produce(self._ground.name(topic), VALUE, b"%d" % self.sent, self.sent % PARTITIONS, headers=headers)
                break
            except BufferError:
                self._producer.poll(0.05)
        self.sent += 1
        if self.sent % 1_000 == 0:
            self._producer.poll(0)

    def send_steadily(self, dues_in_ms: Iterable[int], per_s: int) -> None:
        began_s = time.monotonic()
        for number, due_in_ms in enumerate(dues_in_ms):
            time.sleep(max(0.0, began_s + number / per_s - time.monotonic()))
            self.send(now_ms() + due_in_ms)

    def finish(self) -> None:
        if left := self._producer.flush(SEND_TIMEOUT_S):
            raise BenchmarkError(f"sending to the ladder: {left} records were not taken. Is the broker at {self._ground.bootstrap} well?")


def returned(ground: Ground, count: int, patience_s: float) -> list[Returned]:
    """Read the return topic from its beginning until so many are back, and then for a moment more, for those that come twice."""
    consumer = Consumer({"bootstrap.servers": ground.bootstrap, "group.id": ground.prefix + "reader", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(ground.name(DELIVERIES), number, 0) for number in range(PARTITIONS)])
    found: list[Returned] = []
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        for message in consumer.consume(2_000, 0.2):
            if message.error() is None:
                headers: Any = dict(message.headers() or ())
                found.append(Returned(message.key() or b"", int(headers[DUE]), message.timestamp()[1]))
        if len(found) >= count:
            deadline_s, count = time.monotonic() + 1, 2**62
    consumer.close()
    return found


def late_ms_p99(back: Sequence[Returned]) -> int:
    return sorted(each.late_ms for each in back)[int(len(back) * 0.99)]


def resident_mb(worker: Process) -> float:
    return float(psutil.Process(worker.process.pid).memory_info().rss) / 1e6


def cpu_s(worker: Process) -> float:
    times = psutil.Process(worker.process.pid).cpu_times()
    return float(times.user + times.system)


def held(worker: Process) -> dict[str, dict[str, Any]]:
    """What the worker says that it holds of each partition."""
    before = worker.log.read_text().count('"agent.state"')
    worker.process.send_signal(signal.SIGUSR1)
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        states = [json.loads(line) for line in worker.log.read_text().splitlines() if '"agent.state"' in line and line.endswith("}")]
        if len(states) > before:
            inlets: dict[str, dict[str, Any]] = states[-1]["inlets"]
            return inlets
        time.sleep(0.05)
    raise BenchmarkError(f"asking the worker what it holds: it did not say. Its log is {worker.log}")
