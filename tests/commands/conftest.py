"""The ground of every test of a command."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streams.commands import terminal
from tests.commands.ground import Ground, settings_of
from topology.broker import Broker


@pytest.fixture
def ground(broker: Broker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    found = Ground(broker.bootstrap_servers, prefix, tmp_path)
    monkeypatch.setattr(terminal, "configure_logs", lambda *_: None)  # it is for a whole process, which here is the tests'
    with settings_of(found, monkeypatch), capture_logs():
        yield found
