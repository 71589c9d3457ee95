"""Times as people write them."""

import pytest

from streams.commands.times import duration_ms, instant_ms, readable_ms
from streams.errors import ConfigurationError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("1s", 1_000), (" 5m", 300_000), ("24h", 86_400_000), ("7d", 604_800_000), ("0s", 0)]
)
def test_a_time_is_a_number_and_its_unit(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1.5h", "1s30", "1w", "٣s", "9999999999999s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a time"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("24h", NOW_MS - 86_400_000),
        ("0s", NOW_MS),
        ("2023-11-14T22:13:20Z", NOW_MS),
        (" 2023-11-15T00:13:20.250+02:00", NOW_MS + 250),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_an_instant_is_rfc_3339_or_how_long_ago_it_was(text: str, ms: int) -> None:
    assert instant_ms(text, NOW_MS) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "2023-11-14", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z", "1700000000", "-1h"])
def test_what_is_no_instant_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no point in time: write 2024-01-31T09:30:00Z, or how long ago"):
        instant_ms(text, NOW_MS)


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59Z", "99999d", "999999999999d", "0001-01-01T00:00:00+23:59"])
def test_an_instant_before_1970_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not between 1970 and 9999"):
        instant_ms(text, NOW_MS)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (61_999, "1 min 1 s"),
        (7_200_000, "2 h"),
        (90_061_000, "1 d 1 h"),
        (86_405_000, "1 d 5 s"),
    ],
)
def test_how_long_is_told_in_two_units(ms: int, text: str) -> None:
    assert readable_ms(ms) == text
