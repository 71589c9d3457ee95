"""Workers that are killed: nothing is lost, and nothing is sent again but what was under way."""

import random

import pytest

from tests.pipeline.conftest import PipelineFor
from tests.pipeline.scenes import Size, crashes
from tests.pipeline.verdict import judge

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

SEED = 20_261_118


def test_workers_killed_at_random_moments_lose_nothing_and_send_again_only_what_was_under_way(pipeline_for: PipelineFor) -> None:
    with pipeline_for(workers=2) as pipeline:
        crashes(pipeline, Size(events=2_000, merchants=40, kills=3), random.Random(SEED))
        verdict = judge(pipeline)

    assert verdict.deliveries == 2_000
    assert verdict.wrong == []
    assert set(verdict.states) == {"DELIVERED", "DLQ", "WAITING_RETRY", "PENDING"}
