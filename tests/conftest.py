"""What tests share: one broker for the whole run, a topic prefix of its own for each test, and settings that name both."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from streams.settings import Settings
from topology.broker import Broker, ensure, stop

SettingsFor = Callable[..., Settings]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """HOOKLINE_TEST_BOOTSTRAP names one that runs already and is left running; else one is started, and stopped at the end."""
    if given := os.environ.get("HOOKLINE_TEST_BOOTSTRAP"):
        yield Broker(given, nodes=(), started=False)
        return
    folder = tmp_path_factory.mktemp("broker")
    try:
        yield ensure(folder, port=0)
    finally:
        stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def prefix() -> str:
    """Keep each test's topics and groups apart on the shared broker."""
    return f"t{uuid4().hex[:10]}."


@pytest.fixture
def settings_for(broker: Broker, tmp_path: Path) -> SettingsFor:
    """Make settings for the shared broker: `settings_for(prefix, partitions=2)`."""

    def make(prefix: str, **others: Any) -> Settings:
        return Settings(**{"bootstrap_servers": broker.bootstrap_servers, "topic_prefix": prefix, "state_dir": tmp_path, **others})

    return make
