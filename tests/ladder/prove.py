"""Proves at full size what waiting costs and how late it is: a million records on a rung, and thousands due at once.

Run: python -m tests.ladder.prove
"""

import random
import sys
import time
from collections.abc import Callable

from bench.ground import Ground, ground
from streams.errors import HooklineError
from tests.ladder.waiting import Sender, cpu_s, late_ms_p99, make_topics, now_ms, resident_mb, returned, working
from tests.proofs import Proof, show, write
from topology.ladder import RUNGS

MILLION = 1_000_000
MILLION_MB_MAX = 150
SETTLED_S = 5.0
IDLE_S = 20.0
IDLE_CPU_MAX = 0.05
STEADY_PER_S, STEADY_S, STEADY_AHEAD_MS = 1_000, 60, 20_000
BURST, BURST_AHEAD_MS, BURST_WITHIN_MS = 20_000, 25_000, 1_000
LATE_MS_MAX = 1_000
PATIENCE_S = 120


def prove_million(standing: Ground) -> dict[str, Proof]:
    """What a worker holds and does while a million records wait on the longest rung."""
    make_topics(standing)
    with working(standing, "million") as worker:
        time.sleep(SETTLED_S)
        empty_mb = most_mb = resident_mb(worker)
        sender, due_ms = Sender(standing), now_ms() + 80 * 3_600_000
        for number in range(MILLION):
            sender.send_to(RUNGS[-1].topic, due_ms)
            if number % 50_000 == 0:
                most_mb = max(most_mb, resident_mb(worker))
        sender.finish()
        standing.tell(f"{MILLION:,} records wait")
        time.sleep(SETTLED_S)
        most_mb, before_s = max(most_mb, resident_mb(worker)), cpu_s(worker)
        time.sleep(IDLE_S)
        most_mb, idle_cpu = max(most_mb, resident_mb(worker)), (cpu_s(worker) - before_s) / IDLE_S
        standing.tell(f"{empty_mb:.0f} MB with nothing waiting, {most_mb:.0f} MB at most; {idle_cpu:.3f} of a core while they wait")
    return {
        "ladder.million_waiting_mb": Proof(round(most_mb - empty_mb, 1), MILLION_MB_MAX),
        "ladder.million_waiting_cpu": Proof(round(idle_cpu, 3), IDLE_CPU_MAX),
    }


def send_steadily(sender: Sender) -> None:
    """A thousand a second, due at any time in the next 20 s, so through the two shortest rungs."""
    chance = random.Random(1)
    sender.send_steadily((chance.randrange(STEADY_AHEAD_MS) for _ in range(STEADY_PER_S * STEADY_S)), STEADY_PER_S)


def send_burst(sender: Sender) -> None:
    """All due within the same second."""
    chance, from_ms = random.Random(1), now_ms() + BURST_AHEAD_MS
    for _ in range(BURST):
        sender.send(from_ms + chance.randrange(BURST_WITHIN_MS))


def prove_lateness(standing: Ground, name: str, send: Callable[[Sender], None], count: int) -> dict[str, Proof]:
    """How late records are when they are back; whether one was early, lost or came twice."""
    make_topics(standing)
    with working(standing, name):
        time.sleep(SETTLED_S)
        sender = Sender(standing)
        send(sender)
        sender.finish()
        back = returned(standing, count, PATIENCE_S)
    late = late_ms_p99(back)
    standing.tell(f"{name}: {len(back):,} are back, p99 {late} ms late, {max(each.late_ms for each in back)} at most")
    distinct = len({each.key for each in back})
    return {
        f"ladder.{name}_late_ms_p99": Proof(late, LATE_MS_MAX),
        f"ladder.{name}_early": Proof(sum(each.late_ms < 0 for each in back), 0),
        f"ladder.{name}_lost": Proof(count - distinct, 0),
        f"ladder.{name}_doubled": Proof(len(back) - distinct, 0),
    }


def prove(standing: Ground) -> dict[str, Proof]:
    """Each on topics of its own."""

    def own(name: str) -> Ground:
        return Ground(standing.bootstrap, standing.folder, f"{standing.prefix}{name}-", standing.tell)

    return {
        **prove_lateness(own("steady"), "steady", send_steadily, STEADY_PER_S * STEADY_S),
        **prove_lateness(own("burst"), "burst", send_burst, BURST),
        **prove_million(own("million")),
    }


def main() -> None:
    try:
        with ground() as standing:
            proofs = prove(standing)
    except HooklineError as error:
        sys.exit(f"ladder proof: {error}")
    write(proofs)
    show(proofs)
    sys.exit(0 if all(proof.ok for proof in proofs.values()) else 1)


if __name__ == "__main__":
    main()
