"""The delivery pipeline at full size: `make prove`, with the figures in bench/proofs.json.

Run: python -m tests.pipeline.prove [--only schedule,crashes,hanging,queue,order,change] [--seed N]
"""

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from bench.ground import Ground, ground
from streams.delivery.profiles import profile_named
from tests.pipeline.harness import Pipeline, now_ms
from tests.pipeline.scenes import Size, crashes, ordered_with_kills
from tests.pipeline.verdict import Verdict, judge, judge_order
from tests.proofs import Proof, show, write

Proofs = dict[str, Proof]

TIME_SCALE = 2_000.0
"""110 h 36 min in 200 s."""
LATE_MS_MAX = 1_000
AGAIN_PER_KILL_MAX = 2 * 512
"""What a worker has under way, and as much again in the transaction under way."""
RATIO_MAX = 1.5
RESIDENT_MB_MAX = 400
WINDOWS = 12


def schedule(pipeline: Pipeline, chance: random.Random) -> Proofs:
    """Every attempt of `simpaisa`, none early, none late."""
    delays = profile_named("simpaisa").schedule.scaled(TIME_SCALE)
    name = pipeline.subscribe("m1", "/status/500/m1")
    pipeline.start()
    events = pipeline.send("m1", 50)
    pipeline.until(lambda: pipeline.are("DLQ", name, events), "all are dead", timeout_s=900)
    pipeline.stop()
    waits = [(number, gap) for event in events for number, gap in gaps_ms(pipeline, name, event)]
    late = [gap - delays.delay_ms(number, 0.0) for number, gap in waits]
    eight = [1, 2, 3, 4, 5, 6, 7, 8]
    wrong = [event for event in events if [arrival.attempt for arrival in pipeline.journal.of["/status/500/m1", event]] != eight]
    wrong += [letter["event_id"] for letter in pipeline.outcome.letters if [each["number"] for each in letter["history"]] != eight]
    return {
        "early": Proof(sum(1 for ms in late if ms < -1), 0),
        "wrong_attempts": Proof(len(wrong), 0),
        "missing_dead_letters": Proof(len(events) - len(pipeline.outcome.letters), 0),
        "late_ms_p99": Proof(percentile(late, 99), LATE_MS_MAX),
    }


def gaps_ms(pipeline: Pipeline, name: str, event: str) -> list[tuple[int, float]]:
    """How long after each attempt's answer the next one arrived."""
    arrivals = pipeline.journal.of["/status/500/m1", event]
    durations = [attempt["duration_ms"] for attempt in pipeline.outcome.status[event, name]["attempts"]]
    return [
        (number, after.at_ms - before.at_ms - took_ms)
        for number, ((before, after), took_ms) in enumerate(zip(pairwise(arrivals), durations, strict=False), start=1)
    ]


def crash(pipeline: Pipeline, chance: random.Random) -> Proofs:
    """50,000 events for 200 merchants, a tenth of them failing, five kills."""
    size = Size(events=50_000, merchants=200, kills=5)
    crashes(pipeline, size, chance)
    return proofs_of(judge(pipeline), size.events, size.kills)


def order(pipeline: Pipeline, chance: random.Random) -> Proofs:
    """Ordered subscriptions under failures and kills."""
    kills = 5
    ordered_with_kills(pipeline, events=6_000, resources=50, kills=kills, chance=chance)
    found = judge_order(pipeline)
    tell_wrong(found.wrong)
    verdict = judge(pipeline)
    return {
        **proofs_of(verdict, verdict.deliveries, kills),
        "out_of_order": Proof(len(found.wrong), 0),
        "not_overtaken": Proof(int(found.overtaken == 0), 0),
    }


def proofs_of(verdict: Verdict, deliveries: int, kills: int) -> Proofs:
    print(f"  {verdict.deliveries} deliveries {dict(verdict.states)}, {verdict.sent_again} sent again by {kills} kills", file=sys.stderr)
    tell_wrong(verdict.wrong)
    return {
        "lost": Proof(len(verdict.lost) + abs(deliveries - verdict.deliveries), 0),
        "unexplained": Proof(len(verdict.unexplained), 0),
        "sent_again_per_kill": Proof(round(verdict.sent_again / kills, 1), AGAIN_PER_KILL_MAX),
    }


def hanging(pipeline: Pipeline, chance: random.Random) -> Proofs:
    """20 of 200 endpoints begin to take 10 s, more at once than a worker posts; the others beside a pipeline where none does."""
    merchants = [f"m{number}" for number in range(200)]
    hang = merchants[9::10]
    with beside(pipeline) as control:
        both = (pipeline, control)
        subscribe_all(both, merchants)
        feed(both, merchants, per_s=200, seconds=10)
        for merchant in hang:
            pipeline.behave(f"/ok/{merchant}", "slow/10000")
        sent, sent_beside = feed(both, merchants, per_s=200, seconds=60)
        return ratio_of((control, not_of(control, sent_beside, hang)), (pipeline, not_of(pipeline, sent, hang)))


def queue(pipeline: Pipeline, chance: random.Random) -> Proofs:
    """200,000 events for a merchant that takes ten a second; others beside a pipeline that has none of them."""
    others = [f"m{number}" for number in range(50)]
    busy = pipeline.subscribe("busy", "/ok/busy", rate_per_s=10.0, burst=20)
    with beside(pipeline) as control:
        both = (pipeline, control)
        subscribe_all(both, others)
        feed(both, others, per_s=200, seconds=10)
        resident = Resident(pipeline.run.pid(1))
        began_s = time.monotonic()
        put_away(pipeline, busy, pipeline.send("busy", 200_000), resident)
        sent, sent_beside = feed(both, others, per_s=200, seconds=60, meanwhile=resident.note)
        ratio = ratio_of((control, sent_beside), (pipeline, sent))
    taken = len(pipeline.journal.at("/ok/busy"))
    most = 20 + 10 * (time.monotonic() - began_s) + 1
    return {
        **ratio,
        "resident_mb": Proof(round(resident.most_mb), RESIDENT_MB_MAX),
        "over_its_rate": Proof(max(0, taken - most), 0),
    }


def put_away(pipeline: Pipeline, name: str, queued: list[str], resident: "Resident") -> None:
    """Until each of a queue has its place on the ladder."""
    began_s = time.monotonic()
    while sum(1 for _, each in pipeline.outcome.status if each == name) < len(queued):
        resident.note()
        pipeline.read()
        time.sleep(0.05)
        assert time.monotonic() - began_s < 900, f"the queue is not put away: {pipeline.outcome.summary()}"
    print(f"  {len(queued)} were put away in {time.monotonic() - began_s:.0f} s", file=sys.stderr)


def beside(pipeline: Pipeline) -> Pipeline:
    """Another one at the same time, so that whatever else the machine does is done to both."""
    folder = pipeline.folder / "beside"
    folder.mkdir()
    return Pipeline(pipeline.servers, f"{pipeline.prefix}beside.", folder, workers=pipeline.workers, **pipeline.given)


def subscribe_all(pipelines: Sequence[Pipeline], merchants: Sequence[str]) -> None:
    """The same merchants in each, and their workers begin."""
    for pipeline in pipelines:
        for merchant in merchants:
            pipeline.subscribe(merchant, f"/ok/{merchant}")
        pipeline.start()


def not_of(pipeline: Pipeline, events: list[str], merchants: list[str]) -> list[str]:
    return [event for event in events if pipeline.sent[event].merchant not in merchants]


class Resident:
    """The most that a worker held in memory."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.most_mb = 0.0

    def note(self) -> bool:
        self.most_mb = max(self.most_mb, self._process.memory_info().rss / 1e6)
        return True


def change(pipeline: Pipeline, chance: random.Random) -> Proofs:
    """How soon a changed subscription is used."""
    name = pipeline.subscribe("m1", "/ok/0")
    pipeline.start()
    took_ms = []
    for turn in range(1, 31):
        pipeline.change(name, path=f"/ok/{turn}")
        began_ms = now_ms()
        path = f"/ok/{turn}"
        event = pipeline.probe("m1", name, lambda event, path=path: bool(pipeline.journal.of[path, event]), "the change is current")  # type: ignore[misc]
        took_ms.append(pipeline.journal.of[path, event][0].at_ms - began_ms)
    return {"current_ms_max": Proof(round(max(took_ms)), 1_000)}


def feed(
    pipelines: Sequence[Pipeline], merchants: Sequence[str], per_s: int, seconds: int, meanwhile: Callable[[], Any] = lambda: None
) -> list[list[str]]:
    """Events for each pipeline at the same steady rate, for the merchants in turn. Their ids, of each pipeline."""
    ids: list[list[str]] = [[] for _ in pipelines]
    count, began_s = 0, time.monotonic()
    while (passed_s := time.monotonic() - began_s) < seconds:
        while count < passed_s * per_s:
            for pipeline, sent in zip(pipelines, ids, strict=True):
                sent += pipeline.send(merchants[count % len(merchants)])
            count += 1
        meanwhile()
        time.sleep(0.002)
    return ids


def ratio_of(*compared: tuple[Pipeline, list[str]]) -> Proofs:
    """The 99th percentile from producing to receipt of the second to that of the first, each the median over some windows."""
    p99_ms = []
    for pipeline, ids in compared:
        pipeline.until(lambda: all(first_ms(pipeline, event) for event in ids), "all have arrived")  # noqa: B023 - used before the next
        size = math.ceil(len(ids) / WINDOWS)
        took_ms = [first_ms(pipeline, event) - pipeline.sent[event].time_ms for event in ids]
        windows = [percentile(took_ms[first : first + size], 99) for first in range(0, len(took_ms), size)]
        p99_ms.append(statistics.median(windows))
        print(
            f"  p50 {percentile(took_ms, 50):.1f} ms, p99 {percentile(took_ms, 99):.1f} ms, of windows {[round(each) for each in windows]}",
            file=sys.stderr,
        )
    return {"p99_ratio": Proof(round(p99_ms[1] / p99_ms[0], 2), RATIO_MAX)}


def first_ms(pipeline: Pipeline, event: str) -> float:
    arrivals = pipeline.journal.of[f"/ok/{pipeline.sent[event].merchant}", event]
    return arrivals[0].at_ms if arrivals else 0.0


def percentile(values: Sequence[float], rank: int) -> float:
    return sorted(values)[max(0, math.ceil(len(values) * rank / 100) - 1)]


def tell_wrong(wrong: Sequence[str]) -> None:
    for line in wrong[:10]:
        print(f"  wrong: {line}", file=sys.stderr)


PARTS: dict[str, tuple[Callable[[Pipeline, random.Random], Proofs], dict[str, Any]]] = {
    "schedule": (schedule, {"time_scale": TIME_SCALE, "disable_failures_max": 10_000}),
    "crashes": (crash, {"workers": 2, "partitions": 6}),
    "hanging": (hanging, {"partitions": 6, "posts_in_flight_max": 32}),
    "queue": (queue, {"partitions": 6}),
    "order": (order, {"workers": 2}),
    "change": (change, {}),
}


def prove(name: str, standing: Ground, chance: random.Random) -> Proofs:
    part, settings = PARTS[name]
    folder: Path = standing.folder / name
    folder.mkdir()
    standing.tell(name)
    with Pipeline(standing.bootstrap, f"{standing.prefix}{name}.", folder, **settings) as pipeline:
        return {f"pipeline.{name}.{figure}": proof for figure, proof in part(pipeline, chance).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"there is no {', '.join(unknown)}: choose from {', '.join(PARTS)}")
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    proofs: Proofs = {}
    with ground() as standing:
        for name in names:
            found = prove(name, standing, random.Random(options.seed))
            write(found)
            show(found)
            proofs |= found
    sys.exit(0 if all(proof.ok for proof in proofs.values()) else 1)


if __name__ == "__main__":
    main()
