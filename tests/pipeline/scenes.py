"""What is played on a pipeline, at the size of a test or of a proof."""

import random
from dataclasses import dataclass

from tests.pipeline.harness import Pipeline

SOON_DEAD = {"delays_ms": [100, 200, 400]}
OFTEN = {"delays_ms": [50] * 40}
FAILING = (("/flaky/50", OFTEN), ("/status/500", SOON_DEAD), ("/reset", SOON_DEAD), ("/status/503", None))
"""How every tenth merchant fails: one recovers, one ends in the DLQ, one waits for its breaker, and one for its next attempt."""
STALLING = frozenset({"/reset", "/status/503"})
"""These wait on the ladder for longer than anybody looks."""


@dataclass(frozen=True)
class Size:
    """How many, and how often it is struck."""

    events: int
    merchants: int
    kills: int


def crashes(pipeline: Pipeline, size: Size, chance: random.Random) -> None:
    """Events for many merchants, a tenth of them failing, while workers are killed at random moments; until each is over or waits."""
    subscribe_with_failing(pipeline, size.merchants)
    pipeline.start()
    for strike in range(size.kills + 1):
        first, beyond = (size.events * turn // (size.kills + 1) for turn in (strike, strike + 1))
        for number in range(first, beyond):
            pipeline.send(f"m{number % size.merchants}")
        if strike < size.kills:
            least = first + chance.randrange((beyond - first) * 3 // 4)
            pipeline.until(lambda least=least: len(pipeline.journal.arrivals) >= least, f"{least} requests have arrived")  # type: ignore[misc]
            pipeline.kill(chance.randint(1, pipeline.workers))
    pipeline.until(lambda: is_settled(pipeline, size.events), "all are over, or wait on the ladder", timeout_s=900)
    pipeline.stop()


def subscribe_with_failing(pipeline: Pipeline, merchants: int) -> None:
    """A subscription for each; of ten merchants the last fails."""
    for number in range(merchants):
        path, overrides = FAILING[number // 10 % len(FAILING)] if number % 10 == 9 else ("/ok", None)
        name = pipeline.subscribe(f"m{number}", f"{path}/m{number}", overrides=overrides)
        if path in STALLING:
            pipeline.stalling.add(name)


def is_settled(pipeline: Pipeline, events: int) -> bool:
    """Whether each is over or waits on the ladder, those that fail soonest being over."""
    outcome = pipeline.outcome
    return len(outcome.status) == events and all(
        status["state"] in ("DELIVERED", "DLQ") or (name in pipeline.stalling and status["state"] in ("WAITING_RETRY", "PENDING"))
        for (_, name), status in outcome.status.items()
    )


def ordered_with_kills(pipeline: Pipeline, events: int, resources: int, kills: int, chance: random.Random) -> None:
    """Two merchants whose ordered endpoints fail often, while workers are killed; until all is delivered."""
    merchants = ("m1", "m2")
    names = {merchant: pipeline.subscribe(merchant, f"/flaky/30/{merchant}", ordered=True, overrides=OFTEN) for merchant in merchants}
    pipeline.start()
    sent: list[tuple[str, str]] = []
    for strike in range(kills + 1):
        for merchant in merchants:
            share = events // len(merchants) // (kills + 1)
            sent += [(event, names[merchant]) for event in pipeline.send(merchant, share, resources=[f"r{n}" for n in range(resources)])]
        if strike < kills:
            least = len(sent) * 3 // 4 + chance.randrange(events // 20)
            pipeline.until(lambda least=least: len(pipeline.journal.arrivals) >= least, f"{least} requests have arrived")  # type: ignore[misc]
            pipeline.kill(chance.randint(1, pipeline.workers))
    pipeline.until(lambda: all(pipeline.outcome.state(*each) == "DELIVERED" for each in sent), "all are delivered", timeout_s=600)
    pipeline.stop()
