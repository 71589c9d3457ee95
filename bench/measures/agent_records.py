"""How many records a second one worker takes through source, channel, agent and offsets, when there is nothing to write."""

from bench.agents import IN, OUT, agent, group_of
from bench.committed import Group
from bench.feed import fill
from bench.ground import Ground
from bench.registry import Measured, benchmark, median_of

RECORDS = 1_300_000
TIMEOUT_S = 90


@benchmark(name="agent_records_per_s", unit="records/s", target=40_000, better="higher")
def agent_records_per_s(ground: Ground) -> Measured:
    """Measure beside a bare consume loop over the same records."""
    ground.make([IN, OUT])
    ground.tell(f"writing {RECORDS:,} records")
    fill(ground, ground.name(IN), range(RECORDS))

    def once(turn: int) -> Measured:
        return Measured(machine(ground, turn), bare(ground, turn))

    return median_of(ground, once, ",.0f")


def machine(ground: Ground, turn: int) -> float:
    measured = agent("nothing", turn)
    ground.make([measured.changelog])
    group = Group(ground, group_of(ground.prefix, measured), ground.name(IN))
    arguments = ("--folder", str(ground.folder / measured.name), "--plan", "nothing", "--turn", str(turn))
    with ground.process(measured.name, "bench.worker", *arguments) as worker:
        pace = group.pace(worker, RECORDS, TIMEOUT_S)
    group.close()
    return pace.records_per_s


def bare(ground: Ground, turn: int) -> float:
    with ground.process(f"bare-consume-{turn}", "bench.bare", "--loop", "consume", "--records", str(RECORDS)) as loop:
        return float(loop.answer(TIMEOUT_S))
