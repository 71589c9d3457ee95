"""What is played on a pipeline, at the size of a test or of a proof."""

import random
from dataclasses import dataclass

from tests.pipeline.harness import Pipeline

SOON_DEAD = {"delays_ms": [100, 200, 400]}
OFTEN = {"delays_ms": [50] * 40}
FAILING = (("/flaky/50", OFTEN), ("/status/500", SOON_DEAD), ("/reset", SOON_DEAD), ("/status/503", None))
"""How every tenth merchant fails: one recovers, two end in the DLQ, and one waits on the ladder for longer than anybody looks."""


@dataclass(frozen=True)
class Size:
    """How many, and how often it is struck."""

    events: int
    merchants: int
    kills: int


def crashes(pipeline: Pipeline, size: Size, chance: random.Random) -> None:
    """Events for many merchants, a tenth of them failing, while workers are killed at random moments; until each is over or waits long."""
    names = subscribe_with_failing(pipeline, size.merchants)
    pipeline.start()
    for number in range(size.events):
        pipeline.send(f"m{number % size.merchants}")
    pipeline.flush()
    moments = sorted(chance.randrange(size.events // 20, size.events * 3 // 4) for _ in range(size.kills))
    for arrivals in moments:
        pipeline.until(lambda arrivals=arrivals: len(pipeline.journal.arrivals) >= arrivals, f"{arrivals} requests have arrived")  # type: ignore[misc]
        pipeline.kill(chance.randint(1, pipeline.workers))
    stalls = {name for name in names if pipeline.subscriptions[name].profile.schedule.delays_ms[0] > 1_000}
    pipeline.until(lambda: is_settled(pipeline, size.events, stalls), "all are over, or wait on the ladder", timeout_s=900)


def subscribe_with_failing(pipeline: Pipeline, merchants: int) -> list[str]:
    """A subscription for each; of ten merchants the last fails."""
    names = []
    for number in range(merchants):
        path, overrides = FAILING[number // 10 % len(FAILING)] if number % 10 == 9 else ("/ok", None)
        names.append(pipeline.subscribe(f"m{number}", f"{path}/m{number}", overrides=overrides))
    return names


def is_settled(pipeline: Pipeline, events: int, stalls: set[str]) -> bool:
    """Whether nothing moves any more: what always fails on a long schedule waits on the ladder."""
    outcome = pipeline.outcome
    return len(outcome.status) == events and all(
        status["state"] in ("DELIVERED", "DLQ") or (status["state"] == "WAITING_RETRY" and name in stalls)
        for (_, name), status in outcome.status.items()
    )
