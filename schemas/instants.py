"""Turns RFC 3339 text into milliseconds since 1970 and back."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999, where RFC 3339 ends
SECONDS_KNOWN = 1_024

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def from_rfc3339(text: str) -> int:
    """Read an instant; what is finer than a millisecond is cut off. ValueError where it is none."""
    if not _RFC3339.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not RFC 3339, such as 2024-01-31T09:30:00.000Z")
    return (datetime.fromisoformat(text.upper()) - _EPOCH) // _MILLISECOND


def to_rfc3339(instant_ms: int) -> str:
    """Write an instant in UTC, with its milliseconds."""
    return f"{_second(instant_ms // 1_000)}.{instant_ms % 1_000:03d}Z"


@lru_cache(SECONDS_KNOWN)
def _second(instant_s: int) -> str:
    """Write a whole second; instants that are written one after another mostly share it."""
    return (_EPOCH + timedelta(seconds=instant_s)).isoformat()[:-6]
