"""What a second worker adds on this machine, whose cores the broker and the merchants share; beside it, a second bare session."""

from concurrent.futures import ThreadPoolExecutor

from bench.deliveries import drain
from bench.ground import Ground
from bench.measures.delivery_rate import bare
from bench.merchants import Sink, sink_of
from bench.registry import Measured, benchmark, median_of

EVENTS = 40_000
BETWEEN = (0.25, 0.85)
"""Once both have their partitions, and before one of them has nothing left."""


@benchmark(name="delivery_two_workers_ratio", unit="", target=1, better="higher")
def delivery_two_workers_ratio(ground: Ground) -> Measured:
    """Measure the pace of two workers as a ratio to that of one."""

    def once(turn: int) -> Measured:
        part = ground.part(str(turn))
        with sink_of(part, "sink") as sink:
            one = drain(part.part("one"), sink, EVENTS, 1, BETWEEN).per_s
            two = drain(part.part("two"), sink, EVENTS, 2, BETWEEN).per_s
            ground.tell(f"{one:,.0f} deliveries/s by one, {two:,.0f} by two")
            return Measured(two / one, bare_ratio(part, sink))

    return median_of(ground, once, ".2f")


def bare_ratio(ground: Ground, sink: Sink) -> float:
    one = bare(ground.part("bare-one"), sink).per_s
    with ThreadPoolExecutor(2) as both:
        two = sum(each.per_s for each in both.map(lambda name: bare(ground.part(name), sink), ("bare-a", "bare-b")))
    return two / one
