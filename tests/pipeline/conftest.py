"""A pipeline for a test, under its own prefix."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.harness import Pipeline
from topology.broker import Broker

PipelineFor = Callable[..., Pipeline]


@pytest.fixture
def pipeline_for(broker: Broker, prefix: str, tmp_path: Path) -> PipelineFor:
    """Make one under this test's prefix: `with pipeline_for(workers=2) as pipeline`."""

    def make(**others: Any) -> Pipeline:
        return Pipeline(broker.bootstrap_servers, prefix, tmp_path, **others)

    return make
