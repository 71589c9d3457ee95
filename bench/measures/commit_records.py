"""How many records a second one worker commits, with one state change and one output each."""

from bench.agents import IN, OUT, agent, group_of
from bench.committed import Group, Pace
from bench.feed import fill
from bench.ground import Ground
from bench.registry import Measured, benchmark, median_of
from topology.topics import changelog

RECORDS = 440_000
TIMEOUT_S = 90


@benchmark(name="commit_records_per_s", unit="records/s", target=30_000, better="higher")
def commit_records_per_s(ground: Ground) -> Measured:
    """Measure beside a bare loop that consumes, writes and commits as many records at a time as the machine did."""
    ground.make([IN, OUT])
    ground.tell(f"writing {RECORDS:,} records")
    fill(ground, ground.name(IN), range(RECORDS))

    def once(turn: int) -> Measured:
        pace = machine(ground, turn)
        ground.tell(f"{pace.records_per_commit:,.0f} records a commit")
        return Measured(pace.records_per_s, bare(ground, turn, round(pace.records_per_commit)))

    return median_of(ground, once, ",.0f")


def machine(ground: Ground, turn: int) -> Pace:
    measured = agent("copy", turn)
    ground.make([measured.changelog])
    group = Group(ground, group_of(ground.prefix, measured), ground.name(IN))
    arguments = ("--folder", str(ground.folder / measured.name), "--plan", "copy", "--turn", str(turn))
    with ground.process(measured.name, "bench.worker", *arguments) as worker:
        pace = group.pace(worker, RECORDS, TIMEOUT_S)
    group.close()
    return pace


def bare(ground: Ground, turn: int, batch: int) -> float:
    ground.make([changelog(f"bare-{turn}")])
    group = Group(ground, f"{ground.prefix}bare-{turn}", ground.name(IN))
    arguments = ("--loop", "transact", "--turn", str(turn), "--batch", str(batch), "--fill")
    with ground.process(f"bare-{turn}", "bench.bare", *arguments) as loop:
        pace = group.pace(loop, RECORDS, TIMEOUT_S)
    group.close()
    return pace.records_per_s
