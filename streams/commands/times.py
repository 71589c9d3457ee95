"""Times as people write them: how long, and since when. Pure."""

import re

from schemas.instants import MS_MAX, from_rfc3339
from streams.errors import ConfigurationError

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")


def duration_ms(text: str) -> int:
    """Read a time such as 500ms, 30s, 5m, 24h or 7d."""
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise ConfigurationError(f"{text[:40]!r} is not a time: write a number and its unit, such as 500ms, 30s, 5m, 24h or 7d")
    return int(found[1]) * UNITS_MS[found[2]]


def instant_ms(text: str, now_ms: int) -> int:
    """Read an instant: RFC 3339, or how long ago it was."""
    text = text.strip()
    if _DURATION.fullmatch(text):
        instant = now_ms - duration_ms(text)
    else:
        try:
            instant = from_rfc3339(text)
        except ValueError:
            raise ConfigurationError(
                f"{text[:40]!r} is no point in time: write 2024-01-31T09:30:00Z, or how long ago it was, such as 90s, 24h or 7d"
            ) from None
    if not 0 <= instant <= MS_MAX:
        raise ConfigurationError(f"{text[:40]!r} is not between 1970 and 9999: write a later one")
    return instant


def readable_ms(span_ms: int) -> str:
    """Say how long, in its two largest units: 3 d 4 h, 2 min 5 s, 350 ms."""
    if span_ms < 1_000:
        return f"{span_ms} ms"
    parts, left = [], span_ms // 1_000
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
