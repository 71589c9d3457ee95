"""How soon a merchant has an event: at a quiet rate, and at half of what a worker can do. Beside it, a bare consume-and-post loop."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from bench.deliveries import prepare, worker
from bench.ground import Ground, Process
from bench.latency import Journal, Latencies, arrived, produce
from bench.measures.delivery_rate import median as median_of_pairs
from bench.measures.delivery_rate import plain
from bench.merchants import MERCHANTS, Events, Sink, sink_of
from bench.registry import REPETITIONS, Measured, benchmark, once_a_run

QUIET_PER_S = 200
WATCH_S = 10.0
WARM_S, WARM_PER_S = 3.0, 200


@dataclass(frozen=True)
class Pair:
    """Through a worker, and through the bare loop right after it."""

    delivered: Latencies
    bare: Latencies


def pairs(ground: Ground, per_s: float) -> list[Pair]:
    """Take turns at a rate, so that a noisy minute falls on both."""
    ground.tell(f"events at {per_s:,.0f} a second")
    return [pair(ground, per_s, turn) for turn in range(1, REPETITIONS + 1)]


def pair(ground: Ground, per_s: float, turn: int) -> Pair:
    found = Pair(latencies(ground.part(f"worker-{turn}"), worker, per_s), latencies(ground.part(f"relay-{turn}"), relay, per_s))
    ground.tell(f"{turn}/{REPETITIONS}: {found.delivered}; bare {found.bare}")
    return found


def latencies(ground: Ground, poster: Callable[[Ground, Sink], AbstractContextManager[Process]], per_s: float) -> Latencies:
    """Warm everything up, then watch for some seconds."""
    events, merchants = Events(ground), range(MERCHANTS)
    with sink_of(ground, "sink", journal=True) as sink:
        prepare(ground, sink)
        with poster(ground, sink) as running:
            journal = Journal(sink.journal)
            arrived(journal, produce(events, merchants, WARM_PER_S, WARM_S), [running])
            found = arrived(journal, produce(events, merchants, per_s, WATCH_S), [running])
            journal.close()
    return found


@contextmanager
def relay(ground: Ground, sink: Sink) -> Iterator[Process]:
    with ground.process("relay", "bench.delivery_bare", "--loop", "relay", "--port", str(sink.running.port)) as running:
        yield running


quiet = once_a_run(lambda ground: pairs(ground, QUIET_PER_S))


@once_a_run
def half(ground: Ground) -> list[Pair]:
    """Half of what a worker has just been seen to do."""
    return pairs(ground, median_of_pairs(plain(ground), lambda each: each.drained.per_s) / 2)


def measured(found: list[Pair], figure: Callable[[Latencies], float]) -> Measured:
    return Measured(statistics.median(figure(each.delivered) for each in found), statistics.median(figure(each.bare) for each in found))


@benchmark(name="delivery_quiet_ms_p50", unit="ms", target=3, better="lower")
def delivery_quiet_ms_p50(ground: Ground) -> Measured:
    """Measure the median at 200 events a second."""
    return measured(quiet(ground), lambda each: each.p50)


@benchmark(name="delivery_quiet_ms_p99", unit="ms", target=9, better="lower")
def delivery_quiet_ms_p99(ground: Ground) -> Measured:
    """Measure what one in a hundred exceeds at 200 events a second."""
    return measured(quiet(ground), lambda each: each.p99)


@benchmark(name="delivery_ms_p50", unit="ms", target=15, better="lower")
def delivery_ms_p50(ground: Ground) -> Measured:
    """Measure the median at half the full rate."""
    return measured(half(ground), lambda each: each.p50)


@benchmark(name="delivery_ms_p99", unit="ms", target=100, better="lower")
def delivery_ms_p99(ground: Ground) -> Measured:
    """Measure what one in a hundred exceeds at half the full rate."""
    return measured(half(ground), lambda each: each.p99)
