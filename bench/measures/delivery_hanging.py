"""Whether merchants that do not answer hold up those that do: the healthy ones' latency with a tenth hanging, beside that without."""

from bench.deliveries import prepare, worker
from bench.ground import Ground
from bench.latency import Journal, Latencies, arrived, produce
from bench.merchants import MERCHANTS, Events, sink_of
from bench.registry import Measured, benchmark, median_of
from streams.delivery.profiles import PROFILES
from streams.settings import Settings
from topology.flow import DELIVER, LADDER

HANGING = MERCHANTS // 10
PER_S, WARM_S, WATCH_S = 500, 5.0, 20.0
HANGING_AT_ONCE = PER_S * HANGING / MERCHANTS * PROFILES["standard"].answer_timeout_ms / 1_000
IN_FLIGHT_MAX = Settings.model_fields["posts_in_flight_max"].default
if HANGING_AT_ONCE <= IN_FLIGHT_MAX:
    raise ValueError(f"{HANGING_AT_ONCE:.0f} posts would hang at once, and a worker has room for {IN_FLIGHT_MAX}: send more of them")


@benchmark(name="delivery_hanging_ratio", unit="", target=1.5, better="lower")
def delivery_hanging_ratio(ground: Ground) -> Measured:
    """Measure the healthy merchants' p99 with a tenth hanging, as a ratio to that without."""

    def once(turn: int) -> Measured:
        without, beside = legs(ground.part(str(turn)))
        ground.tell(f"healthy merchants alone: {without}; with {HANGING} of {MERCHANTS} hanging: {beside}")
        return Measured(beside.p99 / without.p99, 1)

    return median_of(ground, once, ".2f")


def legs(ground: Ground) -> tuple[Latencies, Latencies]:
    """One worker with its ladder; first only healthy merchants have events, then all, the healthy ones as many as before."""
    behaviours = ["hang"] * HANGING + ["ok"] * (MERCHANTS - HANGING)
    healthy, events = range(HANGING, MERCHANTS), Events(ground)
    with sink_of(ground, "sink", journal=True) as sink:
        prepare(ground, sink, behaviours)
        with worker(ground, sink, roles=f"{DELIVER.name},{LADDER.name}") as running:
            journal, healthy_per_s = Journal(sink.journal), PER_S * len(healthy) / MERCHANTS
            arrived(journal, produce(events, healthy, healthy_per_s, WARM_S), [running])
            without = arrived(journal, produce(events, healthy, healthy_per_s, WATCH_S), [running])
            sent = produce(events, range(MERCHANTS), PER_S, WATCH_S)
            beside = arrived(journal, [each for number, each in enumerate(sent) if number % MERCHANTS >= HANGING], [running])
            journal.close()
    return without, beside
