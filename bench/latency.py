"""How long events are under way, from the call that produces each to the moment its merchant has it, at a rate that is kept."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.ground import BenchmarkError, Process
from bench.merchants import Events

ARRIVE_TIMEOUT_S = 60
LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class Latencies:
    """Of every event of a stretch, in milliseconds, ascending."""

    ms: Sequence[float]

    @property
    def p50(self) -> float:
        return self.ms[len(self.ms) // 2]

    @property
    def p99(self) -> float:
        return self.ms[len(self.ms) * 99 // 100]

    def __str__(self) -> str:
        return f"p50 {self.p50:.2f} ms, p99 {self.p99:.2f}"


class Journal:
    """What a sink has written down, read as it grows. Each event's id tells when it was produced."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._left = b""
        self.at_ns: dict[int, int] = {}
        """When each event first arrived."""

    def read(self) -> None:
        *lines, self._left = (self._left + self._file.read()).split(b"\n")
        for line in lines:
            told = orjson.loads(line)
            self.at_ns.setdefault(int(told["headers"]["webhook-id"].removeprefix("evt_")), told["at_ns"])

    def close(self) -> None:
        self._file.close()


def produce(events: Events, merchants: Sequence[int], per_s: float, seconds: float) -> list[int]:
    """Publish to merchants in turn, each event named by the time of its call. One that is late does not put off the next."""
    sent: list[int] = []
    began_s = time.perf_counter()
    for number in range(round(per_s * seconds)):
        if (early_s := began_s + number / per_s - time.perf_counter()) > 0:
            time.sleep(early_s)
        sent.append(time.time_ns())
        events.publish(sent[-1], merchants[number % len(merchants)])
    events.flush()
    return sent


def arrived(journal: Journal, sent: Sequence[int], processes: Sequence[Process]) -> Latencies:
    """Wait until all of them have arrived."""
    deadline_s = time.perf_counter() + ARRIVE_TIMEOUT_S
    while True:
        journal.read()
        with suppress(KeyError):
            return Latencies(sorted((journal.at_ns[each] - each) / 1e6 for each in sent))
        for process in processes:
            process.check()
        if time.perf_counter() > deadline_s:
            missing = sum(each not in journal.at_ns for each in sent)
            raise BenchmarkError(f"waiting for {len(sent)} events: {missing} did not arrive. Log: {[str(each.log) for each in processes]}")
        time.sleep(LOOK_EVERY_S)
