"""Which requests may be made of the replay agent, and what is refused before anything is written."""

from collections.abc import Callable
from typing import Any

import pytest

import schemas
from streams.commands import requests
from streams.commands.requests import Asked, Selection
from streams.errors import ConfigurationError

NOW_MS = 1_700_000_000_000
ASKED = Asked("rep_1", "mia", NOW_MS, "it was our fault")
BARE = Asked("rep_1", "mia", NOW_MS)
SUBSCRIPTION = {"id": "sub_1", "state": "DISABLED", "state_since_ms": 500, "created_ms": 400}
Make = Callable[[], dict[str, Any]]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda: requests.replay_letters(ASKED, Selection(event_id="e1")),
            {"action": "START", "from_log": "DEAD_LETTERS", "event_id": "e1", "note": "it was our fault", "requested_ms": NOW_MS},
        ),
        (
            lambda: requests.replay_letters(BARE, Selection(reason="GONE", from_ms=5, to_ms=9), 2.5, dry_run=True),
            {"action": "START", "reason": "GONE", "from_ms": 5, "to_ms": 9, "rate_per_s": 2.5, "dry_run": True, "note": None},
        ),
        (
            lambda: requests.replay_events(BARE, Selection(subscription_id="sub_1", from_ms=5), missing_only=True),
            {"action": "START", "from_log": "EVENTS", "subscription_id": "sub_1", "missing_only": True, "include_cancelled": False},
        ),
        (
            lambda: requests.replay_since_disabled(BARE, SUBSCRIPTION, 7),
            {
                "from_log": "EVENTS", "subscription_id": "sub_1", "from_ms": 400, "to_ms": None, "missing_only": True,
                "include_cancelled": True, "rate_per_s": 7,
            },
        ),
        (lambda: requests.triage(ASKED, "DISCARD", Selection(dead_letter_id="l1")), {"action": "DISCARD", "dead_letter_id": "l1"}),
        (lambda: requests.retry_now(BARE, "e1", "sub_1"), {"action": "RETRY_NOW", "event_id": "e1", "subscription_id": "sub_1"}),
        (lambda: requests.cancel(BARE, "e1"), {"action": "CANCEL", "event_id": "e1", "subscription_id": None}),
        (lambda: requests.control(BARE, "PAUSE"), {"id": "rep_1", "action": "PAUSE", "requested_by": "mia", "progress": None}),
    ],
)  # fmt: skip
def test_a_request_is_written_as_it_was_asked(make: Make, expected: dict[str, Any]) -> None:
    written = schemas.decode(schemas.encode(schemas.REPLAY_REQUEST, make()), schemas.REPLAY_REQUEST)

    assert {name: written[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: requests.replay_events(BARE, Selection(from_ms=5)), "say which with --subscription"),
        (lambda: requests.replay_events(BARE, Selection(subscription_id="sub_1")), "say where with --from"),
        (lambda: requests.replay_events(BARE, Selection(subscription_id="s", from_ms=NOW_MS + 1)), "begins in the future"),
        (lambda: requests.replay_events(BARE, Selection(subscription_id="s", from_ms=9, to_ms=9)), "ends before it begins"),
        (lambda: requests.replay_letters(BARE, Selection(), 0), "the rate a second is 0: give 0.001 to 10000"),
        (lambda: requests.replay_letters(BARE, Selection(), 10_001), "the rate a second is 10001"),
        (lambda: requests.replay_letters(BARE, Selection(), float("nan")), "the rate a second is nan"),
        (lambda: requests.replay_letters(BARE, Selection(event_id="")), "the event id must be 1 to"),
        (lambda: requests.replay_letters(Asked("r", "", 1), Selection()), r"the person who asks \(--by\) must be 1 to 200"),
        (lambda: requests.replay_letters(Asked("r", "me", 1, "two\nlines"), Selection()), "the note must be .* on one line"),
        (lambda: requests.triage(BARE, "DISCARD", Selection(event_id="e1")), "to discard a dead letter takes a note"),
        (lambda: requests.triage(ASKED, "ACKNOWLEDGE", Selection()), "say which dead letters to acknowledge"),
        (lambda: requests.replay_since_disabled(BARE, {**SUBSCRIPTION, "state": "ACTIVE"}), "is ACTIVE, so it does not tell since when"),
    ],
)
def test_what_may_not_be_asked_is_refused_with_its_reason(make: Make, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        make()


@pytest.mark.parametrize(("text", "name"), [("exhausted", "EXHAUSTED"), (" Too-Large", "TOO_LARGE"), ("GONE", "GONE")])
def test_a_reason_is_read_in_any_case(text: str, name: str) -> None:
    assert requests.reason_named(text) == name


@pytest.mark.parametrize("text", ["", "UNKNOWN", "broken"])
def test_a_reason_that_there_is_not_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(ConfigurationError, match="choose from MALFORMED, TOO_LARGE, EXHAUSTED"):
        requests.reason_named(text)


def test_a_replay_since_the_disabling_begins_a_day_before_it_for_what_was_read_late_and_never_before_the_subscription_was_made() -> None:
    day_ms = 24 * 3_600_000
    old = {**SUBSCRIPTION, "state_since_ms": 10 * day_ms, "created_ms": day_ms}

    assert requests.replay_since_disabled(ASKED, old)["from_ms"] == 9 * day_ms
    assert requests.replay_since_disabled(ASKED, {**old, "created_ms": 10 * day_ms - 1})["from_ms"] == 10 * day_ms - 1
