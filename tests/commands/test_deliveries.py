"""Where the deliveries of an event stand that have no status yet, and what the others wait for."""

from typing import Any

import pytest

from schemas.event import Event
from streams.commands.deliveries import Handled, event_named, untold, why_it_waits
from streams.delivery.subscription_changes import DEFAULTS

EVENT = Event(id="e1", type="payin.success", source="s", merchant="m1", time_ms=0, data=b'{"currency":"PKR"}')
READ = Handled(committed=10, high=20, unfinished=frozenset({15}))


def subscription(**others: Any) -> dict[str, Any]:
    return {**DEFAULTS, "id": "sub_1", "merchant": "m1", "revision": 1, "state": "ACTIVE", "secrets": [], **others}


@pytest.mark.parametrize(
    ("offset", "handled", "standing"),
    [
        (9, READ, "DONE"), (10, READ, "UNDER_WAY"), (11, READ, "DONE"), (15, READ, "UNDER_WAY"), (19, READ, "DONE"), (20, READ, "UNREAD"),
        (0, Handled(), "UNREAD"), (4, Handled(5, 5), "DONE"), (5, Handled(5, 5), "UNREAD"), (6, Handled(5, 5), "UNREAD"),
    ],
)  # fmt: skip
def test_how_far_a_role_has_come_with_a_record(offset: int, handled: Handled, standing: str) -> None:
    assert handled.standing(offset) == standing


@pytest.mark.parametrize(
    ("offset", "others", "state", "reason"),
    [
        (20, {}, "PENDING", "no worker has read it yet"),
        (15, {}, "PENDING", "a worker has it"),
        (20, {"state": "PAUSED"}, "PENDING", "no worker has read it yet"),
        (11, {}, "NOT_GIVEN", "when its turn came, the subscription did not want it"),
        (20, {"state": "DISABLED"}, "NOT_GIVEN", "its subscription is disabled"),
        (20, {"filters": [{"path": "currency", "values": ['"PKR"']}]}, "PENDING", "no worker has read it yet"),
    ],
)
def test_a_subscription_without_a_status_is_told_what_is_true(offset: int, others: dict[str, Any], state: str, reason: str) -> None:
    (found,) = untold(EVENT, offset, [], [subscription(**others)], READ)

    assert (found.subscription_id, found.state) == ("sub_1", state)
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(
    "others",
    [{"merchant": "m2"}, {"event_types": ["payout.*"]}, {"filters": [{"path": "currency", "values": ['"EUR"']}]}, {"id": "told"}],
)
def test_who_does_not_want_it_or_has_told_of_it_is_left_out(others: dict[str, Any]) -> None:
    assert untold(EVENT, 20, ["told"], [subscription(**others)], READ) == []


@pytest.mark.parametrize(
    ("key", "name"), [(b"https://a b/c e1 sub_1", b"e1"), (b"s e1 sub_1", b"e1"), (b"e1", b""), (None, b""), (b"e1 sub_1", b"")]
)
def test_an_events_id_is_found_in_a_statuss_key(key: bytes | None, name: bytes) -> None:
    assert event_named(key) == name


@pytest.mark.parametrize(
    ("waits_for", "due_ms", "told"),
    [
        (None, None, None),
        ("PAUSED", None, "until its subscription is resumed"),
        ("RETRY", 61_000, "for its next attempt, due in 1 min 1 s"),
        ("RETRY", 0, "for its next attempt, due now"),
        ("UNKNOWN", None, "for unknown"),
    ],
)
def test_why_it_waits_is_told_with_its_time(waits_for: str | None, due_ms: int | None, told: str | None) -> None:
    assert why_it_waits({"waits_for": waits_for, "next_retry_ms": due_ms}, 0) == told
