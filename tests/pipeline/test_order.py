"""Ordered subscriptions: each resource's events one after another with their numbers, whatever fails, and resources beside each other."""

import random

import pytest

from tests.pipeline.conftest import PipelineFor
from tests.pipeline.scenes import ordered_with_kills
from tests.pipeline.verdict import judge, judge_order

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

SEED = 20_261_119


def test_each_resource_arrives_in_order_and_numbered_though_attempts_fail_and_workers_die(pipeline_for: PipelineFor) -> None:
    with pipeline_for(workers=2) as pipeline:
        ordered_with_kills(pipeline, events=400, resources=8, kills=2, chance=random.Random(SEED))
        verdict = judge(pipeline)
        order = judge_order(pipeline)

    assert verdict.wrong == []
    assert set(verdict.states) == {"DELIVERED"}
    assert order.wrong == []
    assert order.overtaken > 0, "no resource got ahead of another that was being tried again"
