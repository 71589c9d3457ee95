"""How many deliveries a second one worker makes while events wait, and what they cost: from the topic to the committed status."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.deliveries import Drained, drain
from bench.ground import Ground
from bench.merchants import Sink, sink_of
from bench.registry import REPETITIONS, Measured, benchmark, once_a_run

EVENTS, POSTS = 30_000, 15_000
BARE_TIMEOUT_S = 120


@dataclass(frozen=True)
class Pair:
    """A worker, and a session that posts the same to the same sink right after it."""

    drained: Drained
    bare: "Bare"

    @property
    def ratio(self) -> float:
        return self.drained.per_s / self.bare.per_s


@dataclass(frozen=True)
class Bare:
    """A session that does nothing but post."""

    per_s: float
    cpu_s_per_1000: float


def pairs(ground: Ground, *, tls: bool) -> list[Pair]:
    """Take turns, so that a noisy minute falls on both."""
    ground.tell(f"{EVENTS:,} events to merchants{' over TLS' if tls else ''}, and {POSTS:,} posts of a bare session")
    return [pair(ground.part(f"{'tls' if tls else 'plain'}-{turn}"), tls) for turn in range(1, REPETITIONS + 1)]


def pair(ground: Ground, tls: bool) -> Pair:
    with sink_of(ground, "sink", tls=tls) as sink:
        found = Pair(drain(ground, sink, EVENTS), bare(ground, sink))
    ground.tell(f"{found.drained}; bare {found.bare.per_s:,.0f} posts/s, {found.bare.cpu_s_per_1000:.3f}; ratio {found.ratio:.2f}")
    return found


def bare(ground: Ground, sink: Sink) -> Bare:
    arguments = ["--loop", "post", "--port", str(sink.running.port), "--posts", str(POSTS)]
    if sink.authority is not None:
        arguments += ["--authority", str(sink.authority)]
    with ground.process("bare", "bench.delivery_bare", *arguments) as loop:
        per_s, used_s = loop.answer(BARE_TIMEOUT_S).split()
    return Bare(float(per_s), float(used_s))


plain = once_a_run(lambda ground: pairs(ground, tls=False))
over_tls = once_a_run(lambda ground: pairs(ground, tls=True))


def median(found: list[Pair], figure: Callable[[Pair], float]) -> float:
    return statistics.median(figure(each) for each in found)


@benchmark(name="deliveries_per_s", unit="deliveries/s", target=1_500, better="higher")
def deliveries_per_s(ground: Ground) -> Measured:
    """Measure beside the posts of a bare session."""
    found = plain(ground)
    return Measured(median(found, lambda each: each.drained.per_s), median(found, lambda each: each.bare.per_s))


@benchmark(name="delivery_ratio_to_bare_post", unit="", target=0.8, better="higher")
def delivery_ratio_to_bare_post(ground: Ground) -> Measured:
    """Measure how much of a bare session's pace is left, pair by pair."""
    return Measured(median(plain(ground), lambda each: each.ratio), 1)


@benchmark(name="delivery_tls_ratio_to_bare_post", unit="", target=0.7, better="higher")
def delivery_tls_ratio_to_bare_post(ground: Ground) -> Measured:
    """Measure the same where both speak TLS."""
    return Measured(median(over_tls(ground), lambda each: each.ratio), 1)


@benchmark(name="delivery_cpu_s_per_1000", unit="CPU-s", target=0.2, better="lower")
def delivery_cpu_s_per_1000(ground: Ground) -> Measured:
    """Measure what worker and broker use; beside it, what the posts of a bare session do."""
    found = plain(ground)
    used = median(found, lambda each: each.drained.worker_cpu_s_per_1000 + each.drained.broker_cpu_s_per_1000)
    return Measured(used, median(found, lambda each: each.bare.cpu_s_per_1000))
