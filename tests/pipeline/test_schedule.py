"""A delivery that always fails: every attempt of its schedule when it is due, and then the DLQ."""

from itertools import pairwise

import pytest

from streams.delivery.profiles import profile_named
from tests.pipeline.conftest import PipelineFor

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TIME_SCALE = 40_000.0
"""110 h 36 min in 10 s."""


def test_all_eight_attempts_of_simpaisa_come_when_due_through_the_ladder_to_the_dlq(pipeline_for: PipelineFor) -> None:
    schedule = profile_named("simpaisa").schedule.scaled(TIME_SCALE)
    with pipeline_for(time_scale=TIME_SCALE) as pipeline:
        name = pipeline.subscribe("m1", "/status/500/m1")
        pipeline.start()
        events = pipeline.send("m1", 5)
        pipeline.until(lambda: pipeline.are("DLQ", name, events) and len(pipeline.outcome.letters) == 5, "all are dead")

    letters = {letter["event_id"]: letter for letter in pipeline.outcome.letters}
    for event in events:
        arrivals = pipeline.journal.of["/status/500/m1", event]
        assert [arrival.attempt for arrival in arrivals] == [1, 2, 3, 4, 5, 6, 7, 8]
        for number, (before, after) in enumerate(pairwise(arrivals), start=1):
            # A millisecond: the worker's clock is read in whole ones.
            assert after.at_ms - before.at_ms >= schedule.delay_ms(number, 0.0) - 1, f"attempt {number + 1} was early"
        status, letter = pipeline.outcome.status[event, name], letters[event]
        assert [attempt["number"] for attempt in letter["history"]] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert all(attempt["code"] == 500 for attempt in letter["history"])
        assert letter["history"] == status["attempts"]
        assert letter["reason"] == "EXHAUSTED"
        assert letter["payload"].startswith(b'{"id":"' + event.encode())
