"""One merchant's trouble is not another's: endpoints that hang, and a queue that is long."""

import pytest

from tests.pipeline.conftest import PipelineFor

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

HANGING, HEALTHY = 10, 90
POSTS_IN_FLIGHT_MAX = 16


def test_more_hanging_endpoints_than_a_worker_posts_at_once_delay_no_healthy_one(pipeline_for: PipelineFor) -> None:
    patient = {"answer_timeout_ms": 60_000}
    with pipeline_for(posts_in_flight_max=POSTS_IN_FLIGHT_MAX) as pipeline:
        hanging = [pipeline.subscribe(f"hangs{n}", f"/hang/{n}", overrides=patient) for n in range(HANGING)]
        healthy = [pipeline.subscribe(f"well{n}", f"/ok/{n}") for n in range(HEALTHY)]
        pipeline.start()
        for number in range(HANGING):
            pipeline.send(f"hangs{number}", 20)
        pipeline.until(
            lambda: len(pipeline.journal.arrivals) >= POSTS_IN_FLIGHT_MAX // 2, "the hanging ones hold what they are allowed to hold"
        )
        sent = {name: pipeline.send(f"well{number}", 5) for number, name in enumerate(healthy)}
        pipeline.until(lambda: all(pipeline.are("DELIVERED", name, ids) for name, ids in sent.items()), "all healthy ones are delivered")

        ended = [status for (_, name), status in pipeline.outcome.status.items() if name in hanging and status["attempts"]]
        assert ended == [], "a hanging attempt had ended before the healthy ones were delivered"


def test_a_long_queue_at_ten_a_second_delays_nobody(pipeline_for: PipelineFor) -> None:
    with pipeline_for(partitions=1) as pipeline:
        slow = pipeline.subscribe("busy", "/ok/busy", rate_per_s=10.0, burst=20)
        quick = pipeline.subscribe("quiet", "/ok/quiet")
        pipeline.start()
        queued = pipeline.send("busy", 3_000)
        behind = pipeline.send("quiet", 100)
        pipeline.until(lambda: pipeline.are("DELIVERED", quick, behind), "what came behind the queue is delivered")
        pipeline.until(lambda: all(pipeline.outcome.state(event, slow) for event in queued), "each of the queue has its place")

        waiting = [status for (_, name), status in pipeline.outcome.status.items() if name == slow and status["state"] == "PENDING"]
        assert len(waiting) > 2_000, "the queue was gone before anything could have been delayed by it"
        assert all(status["waits_for"] == "THROTTLED" and status["attempts"] == [] for status in waiting)
        slots = sorted(status["next_retry_ms"] for status in waiting)
        in_ten_s = [later - earlier for earlier, later in zip(slots, slots[100:], strict=False)]
        assert min(in_ten_s) >= 9_900, "its slots are closer than ten a second"
