"""Events as people write them, one by its parts or one on a line."""

import pytest

from schemas.event import Event
from streams.commands.event_lines import Usual, made, read
from streams.errors import MalformedRecord

USUAL = Usual("m1", "payin.success", None, "r1")


def test_a_line_says_what_it_says_and_the_options_say_the_rest() -> None:
    line = b'{"merchant": "m2", "id": "e7", "time": "1970-01-01T00:00:01Z", "source": "shop", "data": {"n": 12345678901234567890123}}'

    assert read(line, USUAL, "made", 5) == Event(
        id="e7", type="payin.success", source="shop", merchant="m2", resource="r1", time_ms=1_000, data=b'{"n": 12345678901234567890123}'
    )
    assert read(b'{"data":{}}', USUAL, "made", 5) == made(USUAL, "{}", "made", 5)
    assert read(b'{"data":{}}', USUAL, "made", 5).source == "command-line"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "the event is neither framed Avro nor JSON"),
        (b"[]", "the event's JSON is not as it must be"),
        (b"\xff", "the event"),
        (b"{}", "the event's data is missing"),
        (b'{"data": 5}', "the event's data must be a JSON object"),
        (b'{"data": {}, "type": "a b"}', "the event's type 'a b' must be visible ASCII"),
        (b'{"data": {}, "time": "today"}', "the event's time cannot be read"),
        (b'{"data": {}, "source": "hookline"}', "the source 'hookline' is Hookline's own"),
    ],
)
def test_a_line_that_is_no_event_is_refused_with_its_reason(line: bytes, reason: str) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        read(line, USUAL, "made", 5)


@pytest.mark.parametrize(("usual", "missing"), [(Usual("m1"), "type"), (Usual(None, "t"), "merchant")])
def test_what_neither_says_is_missing(usual: Usual, missing: str) -> None:
    with pytest.raises(MalformedRecord, match=f"the event's {missing} is missing"):
        read(b'{"data":{}}', usual, "made", 5)
