"""What the log layer's tests share."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

LogLines = list[MutableMapping[str, Any]]


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[LogLines]:
    """Keep what is logged out of the way, for who wants to look."""
    with capture_logs() as lines:
        yield lines
