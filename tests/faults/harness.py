"""What a fault run is made of: a feeder, worker processes, an HTTP sink, and a reader that checks what came out."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from aiohttp import web
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from tests.pipelines import COUNTING, EFFECT, IN, OUT, OUTPUTS, POSTED, REFUSED

PARTITIONS = 6
KEYS = 60
ROOT = Path(__file__).parents[2]


class Sink:
    """An HTTP server on loopback that counts what it is sent, and by whom; on a thread of its own."""

    def __init__(self) -> None:
        self.posted: Counter[bytes] = Counter()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait(10)

    async def _serve(self) -> None:
        application = web.Application()
        application.router.add_post("/", self._take)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        value = await request.read()
        await asyncio.sleep(0.002 + (hash(value) % 50) / 1000)  # answers out of order
        self.posted[value] += 1
        return web.Response()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


class Feeder:
    """Writes numbered records at a steady rate until told to stop; on a thread of its own."""

    def __init__(self, bootstrap: str, prefix: str, per_s: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._topic, self._per_s = prefix + IN.name, per_s
        self.sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        began_s = time.monotonic()
        while not self._stopping.is_set():
            while self.sent < (time.monotonic() - began_s) * self._per_s:
                self._producer.produce(self._topic, str(self.sent).encode(), key_of(self.sent), self.sent % KEYS % PARTITIONS)
                self.sent += 1
            self._producer.poll(0)
            time.sleep(0.005)

    def stop(self) -> int:
        """How many were sent, all of them acknowledged."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert left == 0, f"{left} records were never acknowledged"
        return self.sent


def key_of(number: int) -> bytes:
    return b"k%d" % (number % KEYS)


@dataclass
class Run:
    """One pipeline run: its topics, its workers, and where it is fed from and posts to."""

    bootstrap: str
    prefix: str
    folder: Path
    replication: int = 1
    per_s: int = 400
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    logs: dict[str, IO[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        topics = (IN, OUT, POSTED, REFUSED, COUNTING.changelog, EFFECT.changelog)
        config = {"min.insync.replicas": str(max(1, self.replication - 1))}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # kept: it takes its answers with it
        made = admin.create_topics([NewTopic(self.prefix + topic.name, PARTITIONS, self.replication, config=config) for topic in topics])
        for creation in made.values():
            creation.result(30)
        self.sink = Sink()
        self.feeder = Feeder(self.bootstrap, self.prefix, self.per_s)
        self.watcher = Watcher(self.bootstrap, self.prefix)

    def start(self, name: str, fault: str | None = None) -> "subprocess.Popen[bytes]":
        """Start a worker under its supervisor, or the one of that name again."""
        for told in ("pid", "turn"):
            (self.folder / name / told).unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.faults.worker", "--bootstrap", self.bootstrap, "--prefix", self.prefix]
        command += ["--folder", str(self.folder / name), "--sink", self.sink.url, *(["--fault", fault] if fault else [])]
        if name not in self.logs:
            self.logs[name] = (self.folder / f"{name}.log").open("wb")
        self.processes[name] = subprocess.Popen(command, cwd=ROOT, stdout=self.logs[name], stderr=subprocess.STDOUT)
        return self.processes[name]

    def pid(self, name: str) -> int:
        """The worker's own process, below its supervisor."""
        path = self.folder / name / "pid"
        while not path.exists() or not path.read_text():
            assert self.processes[name].poll() is None, f"the supervisor of {name} ended; its log is in {self.folder}"
            time.sleep(0.01)
        return int(path.read_text())

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid(name), number)

    def leave(self, name: str) -> None:
        """Stop a worker for good."""
        leaving = self.processes.pop(name)
        leaving.terminate()
        leaving.wait(30)

    def wait_for_second_life(self, name: str, timeout_s: float = 60) -> bool:
        """Until the supervisor has started it again; False if it goes on living."""
        path = self.folder / name / "turn"
        deadline_s = time.monotonic() + timeout_s
        while not path.exists() or path.read_text() in ("", "1"):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.01)
        return True

    def wait_until_given_work(self, name: str, timeout_s: float = 60) -> None:
        """Until both agents of a worker have been assigned partitions."""
        deadline_s, log = time.monotonic() + timeout_s, self.folder / f"{name}.log"
        while time.monotonic() < deadline_s:
            lines = [line for line in log.read_text().splitlines() if "shards.assigned" in line and '"assigned":0' not in line]
            if all(any(f'"{agent}"' in line for line in lines) for agent in (COUNTING.name, EFFECT.name)):
                return
            time.sleep(0.05)
        raise AssertionError(f"{name} was given no partitions within {timeout_s} s; {self._why()}")

    def wait_until_working(self, timeout_s: float = 120) -> None:
        """Until every partition of both pipelines has given output since now."""
        before = dict(self.watcher.last_s)
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            if len(self.watcher.last_s) == 2 * PARTITIONS and all(at > before.get(place, 0) for place, at in self.watcher.last_s.items()):
                return
            time.sleep(0.05)
        raise AssertionError(f"not every partition gave output within {timeout_s} s; {self._why()}")

    def _why(self) -> str:
        """Ask the workers what they hold, and show the ends of their logs."""
        for name in self.processes:
            self.kill(name, signal.SIGUSR1)
        time.sleep(1)
        silent = sorted(
            (topic.name, number)
            for topic in (OUT, POSTED)
            for number in range(PARTITIONS)
            if (topic.name, number) not in self.watcher.last_s
        )
        ends = [f"--- {name}\n" + "\n".join((self.folder / f"{name}.log").read_text().splitlines()[-25:]) for name in self.processes]
        return f"never any from {silent}; last times {self.watcher.last_s}, now {time.monotonic()}\n" + "\n".join(ends)

    def finish(self, timeout_s: float = 120) -> "Verdict":
        """Stop feeding, wait for the rest, stop everything, and judge."""
        sent = self.feeder.stop()
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and not self.watcher.has_seen(sent):
            time.sleep(0.1)
        time.sleep(0.5)
        verdict = self.judge(sent)
        self.close()
        return verdict

    def close(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.watcher.close()
        self.sink.close()
        for log in self.logs.values():
            log.close()

    def judge(self, sent: int) -> "Verdict":
        verdict = Verdict(sent, never_posted=sum(1 for n in range(sent) if self.sink.posted[str(n).encode()] == 0))
        verdict.posted_again = sum(times - 1 for times in self.sink.posted.values())
        for agent in (COUNTING, EFFECT):
            judge_output(self.watcher.values[OUTPUTS[agent.name].name], sent, verdict)
            state = read_changelog(self.bootstrap, self.prefix + agent.changelog.name)
            expected = {key_of(key): str((sent - key + KEYS - 1) // KEYS).encode() for key in range(min(KEYS, sent))}
            verdict.wrong_state += sum(1 for key in expected if state.get(key) != expected[key])
        return verdict


@dataclass
class Verdict:
    """Output and state against the input: all zero is exact."""

    sent: int
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    wrong_state: int = 0
    never_posted: int = 0
    posted_again: int = 0

    @property
    def exact(self) -> bool:
        return self.lost == self.doubled == self.out_of_order == self.wrong_state == self.never_posted == 0


def judge_output(outputs: list[tuple[bytes, bytes]], sent: int, verdict: Verdict) -> None:
    counted: Counter[bytes] = Counter()
    seen: Counter[int] = Counter()
    for key, value in outputs:
        number, original = value.split(b" ")
        counted[key] += 1
        seen[int(original)] += 1
        verdict.out_of_order += int(number) != counted[key] or key != key_of(int(original))
    verdict.lost += sum(1 for number in range(sent) if seen[number] == 0)
    verdict.doubled += sum(times - 1 for times in seen.values())


class Watcher:
    """Reads both outputs as they are committed, with the time of each: what came, in which order, and after which gaps."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.values: dict[str, list[tuple[bytes, bytes]]] = defaultdict(list)
        self.last_s: dict[tuple[str, int], float] = {}
        self.times: dict[tuple[str, int], list[float]] = defaultdict(list)
        self._prefix = prefix
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": prefix + "watcher",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(prefix + topic.name, number, 0) for topic in (OUT, POSTED) for number in range(PARTITIONS)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            first = self._consumer.poll(0.05)
            messages: list[Any] = [first, *self._consumer.consume(5000, 0)] if first is not None else []
            now_s = time.monotonic()
            for message in messages:
                if message.error() is None:
                    topic = message.topic()[len(self._prefix) :]
                    self.values[topic].append((message.key(), message.value()))
                    place = (topic, message.partition())
                    if self.last_s.get(place) != now_s:
                        self.times[place].append(now_s)
                    self.last_s[place] = now_s
        self._consumer.close()

    def has_seen(self, sent: int) -> bool:
        return all(len(self.values[topic.name]) >= sent for topic in (OUT, POSTED))

    def first_after(self, place: tuple[str, int], moment_s: float) -> float | None:
        return next((at for at in self.times[place] if at > moment_s), None)

    def widest_gap_s(self, places: set[tuple[str, int]], start_s: float, end_s: float) -> float:
        """The longest that any of these gave nothing, between two moments."""
        widest = 0.0
        for place in places:
            moments = [start_s, *(at for at in self.times[place] if start_s < at < end_s), end_s]
            widest = max(widest, *(after - before for before, after in pairwise(moments)))
        return widest

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()


def read_changelog(bootstrap: str, topic: str) -> dict[bytes, bytes]:
    """The state that a changelog says, without the machine's own keys."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "changelog",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    state: dict[bytes, bytes] = {}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        messages: list[Any] = consumer.consume(5000, 0.5)
        for message in messages:
            if message.error() is not None:
                ended.add(message.partition())
            elif not message.key().startswith(b"\x00"):
                state[message.key()] = message.value()
    consumer.close()
    return state
