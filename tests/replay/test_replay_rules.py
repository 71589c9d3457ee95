"""What may be asked, what is meant, and where a replay stands after a word from a person: as tables."""

from typing import Any

import msgspec
import pytest

from streams.replay.request import Progress, Request, decode, encode, tell
from streams.replay.rules import controlled, matches, page_size, rate_per_s, refusal
from streams.replay.state import LETTERS_KEPT_MS, REPLAYS_KEPT_MS, Letter, Replay, expires_ms, indexed_change, opened, replay_change

ASKED = Request(
    id="rep", action="START", from_log="DEAD_LETTERS", dead_letter_id=None, event_id=None, source=None, subscription_id=None, merchant=None,
    event_type=None, reason=None, from_ms=None, to_ms=None, include_cancelled=False, missing_only=False, rate_per_s=None, dry_run=False,
    requested_by="sre", requested_ms=1, note=None,
)  # fmt: skip
LETTER = Letter("id", "DELIVERY", "EXHAUSTED", "m1", "sub", "payin.success", "evt", "/core", 100, "OPEN")


def asked(**others: Any) -> Request:
    return msgspec.structs.replace(ASKED, **others)


@pytest.mark.parametrize(
    ("others", "is_meant"),
    [
        ({}, True),
        ({"dead_letter_id": "id", "event_id": "evt", "source": "/core", "subscription_id": "sub", "merchant": "m1"}, True),
        ({"event_type": "payin.success", "reason": "EXHAUSTED"}, True),
        ({"dead_letter_id": "other"}, False),
        ({"event_id": "other"}, False),
        ({"source": "/other"}, False),
        ({"subscription_id": "other"}, False),
        ({"merchant": "m1", "event_type": "payin.failed"}, False),
        ({"reason": "GONE"}, False),
        ({"from_ms": 100}, True),
        ({"from_ms": 101}, False),
        ({"to_ms": 101}, True),
        ({"to_ms": 100}, False),
    ],
)
def test_a_letter_is_meant_when_all_that_is_asked_holds(others: dict[str, Any], is_meant: bool) -> None:
    assert matches(LETTER, asked(**others)) is is_meant


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({}, None),
        ({"from_log": "EVENTS", "subscription_id": "sub"}, None),
        ({"from_log": "EVENTS"}, "name it"),
        ({"include_cancelled": True}, "name it"),
        ({"from_log": "EVENTS", "subscription_id": "sub", "action": "DISCARD"}, "not triaged"),
        ({"from_log": "UNKNOWN"}, "not understood"),
        ({"action": "UNKNOWN"}, "not understood"),
        ({"action": "CANCEL"}, "without an event"),
        ({"action": "RETRY_NOW", "event_id": "evt"}, None),
        ({"from_ms": 7, "to_ms": 7}, "before it begins"),
        ({"rate_per_s": 0.0}, "no rate"),
        ({"rate_per_s": float("nan")}, "no rate"),
    ],
)
def test_a_request_that_says_nothing_usable_is_refused(others: dict[str, Any], reason: str | None) -> None:
    refused = refusal(asked(**others))

    assert refused is None if reason is None else refused is not None and reason in refused


@pytest.mark.parametrize(
    ("standing", "action", "after"),
    [
        ("RUNNING", "PAUSE", ("PAUSED", 0)),
        ("RUNNING", "STOP", ("STOPPED", 0)),
        ("RUNNING", "RESUME", ("RUNNING", 1)),
        ("PAUSED", "PAUSE", None),
        ("PAUSED", "RESUME", ("RUNNING", 1)),
        ("PAUSED", "STOP", ("STOPPED", 0)),
        ("STOPPED", "RESUME", None),
        ("FINISHED", "RESUME", None),
        ("FINISHED", "STOP", None),
        ("REFUSED", "RESUME", None),
    ],
)
def test_where_a_replay_stands_after_a_word(standing: str, action: str, after: tuple[str, int] | None) -> None:
    progress = controlled(Progress(standing, cursor=5, end=9), action)

    assert (progress and (progress.standing, progress.turn)) == after
    assert progress is None or (progress.cursor, progress.end) == (5, 9)


def test_partitions_share_a_rate_unless_only_one_has_what_is_meant() -> None:
    assert rate_per_s(asked(), 60.0, 6) == 10.0
    assert rate_per_s(asked(rate_per_s=3.0), 60.0, 6) == 0.5
    assert rate_per_s(asked(merchant="m1"), 60.0, 6) == 60.0
    assert [page_size(rate) for rate in (0.1, 7.5, 1e6)] == [1, 7, 200]


def test_a_request_and_its_progress_are_read_as_they_were_written() -> None:
    request, progress = asked(merchant="m1", from_ms=5), Progress("PAUSED", 2, 3, 4, 5, 6, 7, 8, "why")

    assert decode(encode(request)) == (request, None)
    assert decode(tell(request, progress).value) == (msgspec.structs.replace(request, action="PROGRESS"), progress)


def test_what_is_over_is_forgotten_and_what_runs_is_not() -> None:
    assert [expires_ms(*change) for change in opened(7, LETTER) if change[1] is not None] == [100 + LETTERS_KEPT_MS] * 2  # type: ignore[arg-type]
    for standing, expires in (("RUNNING", None), ("PAUSED", None), ("FINISHED", 9 + REPLAYS_KEPT_MS), ("REFUSED", 9 + REPLAYS_KEPT_MS)):
        key, value = replay_change("rep", Replay(b"", Progress(standing), True, 9))
        assert value is not None and expires_ms(key, value) == expires
    key, value = indexed_change(7)
    assert value is not None and expires_ms(key, value) is None
