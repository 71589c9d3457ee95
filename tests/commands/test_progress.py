"""How far replays have come, folded from what the agent tells of each partition."""

from typing import Any

import pytest

from streams.commands.progress import ENDED, Replay, Replays, Totals, why_not
from streams.errors import MalformedRecord

START = {"id": "rep_1", "action": "START", "requested_by": "mia", "requested_ms": 1}


def told(standing: str, **counts: Any) -> dict[str, Any]:
    return {"id": "rep_1", "action": "PROGRESS", "progress": {"standing": standing, **counts}}


def control(action: str, at_ms: int = 2) -> dict[str, Any]:
    return {"id": "rep_1", "action": action, "requested_by": "mia", "requested_ms": at_ms, "note": None}


def replay(*parts: dict[str, Any]) -> Replay:
    found = Replay("rep_1")
    for number, part in enumerate(parts):
        found.apply(number, START)
        if part:
            found.apply(number, part)
    return found


@pytest.mark.parametrize(
    ("parts", "standing"),
    [
        ([{}, {}], "ASKED"),
        ([told("FINISHED"), {}], "RUNNING"),
        ([told("RUNNING"), told("REFUSED")], "RUNNING"),
        ([told("FINISHED"), told("PAUSED")], "PAUSED"),
        ([told("FINISHED"), told("STOPPED")], "STOPPED"),
        ([told("FINISHED"), told("REFUSED"), told("STOPPED")], "REFUSED"),
        ([told("FINISHED"), told("FINISHED")], "FINISHED"),
        ([told("UNKNOWN"), told("FINISHED")], "RUNNING"),
    ],
)
def test_a_replay_stands_as_its_parts_do(parts: list[dict[str, Any]], standing: str) -> None:
    found = replay(*parts)

    assert found.standing == standing
    assert found.has_ended == (standing in ENDED)


def test_counts_are_summed_and_what_is_left_ends_with_its_part() -> None:
    found = replay(
        told("RUNNING", cursor=40, end=100, looked_at=30, matched=3, sent=2, skipped=1),
        told("FINISHED", cursor=7, end=9, looked_at=5, matched=4, sent=4, reason="one had no body"),
    )

    assert found.totals == Totals(looked_at=35, left=60, matched=7, sent=6, skipped=1)
    assert found.reasons == ["one had no body"]


def test_what_was_told_in_an_earlier_turn_changes_nothing() -> None:
    found = replay(told("RUNNING", turn=2, sent=9))
    found.apply(0, told("PAUSED", turn=1, sent=5))
    assert (found.standing, found.totals.sent) == ("RUNNING", 9)

    found.apply(0, told("FINISHED", turn=2, sent=10))
    assert (found.standing, found.totals.sent) == ("FINISHED", 10)


def test_a_control_that_every_partition_has_a_copy_of_is_one() -> None:
    found = replay(told("RUNNING"), told("RUNNING"))
    for partition in range(2):
        found.apply(partition, control("PAUSE"))
    found.apply(0, control("RESUME", 3))

    assert [each["action"] for each in found.controls] == ["PAUSE", "RESUME"]
    assert found.request == START


def test_a_replay_whose_request_has_expired_is_told_by_its_progress() -> None:
    replays = Replays()
    replays.apply(1, told("FINISHED", sent=3))

    found = replays.by_id["rep_1"]
    assert (found.request, found.standing, found.totals.sent) == (None, "FINISHED", 3)


def test_progress_that_tells_none_is_refused() -> None:
    with pytest.raises(MalformedRecord, match="the progress of replay rep_1 tells none"):
        replay().apply(0, {"id": "rep_1", "action": "PROGRESS", "progress": None})


def test_every_part_must_have_been_heard_of_to_be_through() -> None:
    found = replay(told("FINISHED"), {})

    assert not found.all_stand([0, 1], ENDED)
    assert found.all_stand([0], ENDED)
    assert found.unheard([0, 1]) == [1]


@pytest.mark.parametrize(
    ("verb", "parts", "refused"),
    [
        ("PAUSE", [told("RUNNING"), told("FINISHED")], None),
        ("PAUSE", [{}], None),
        ("STOP", [told("PAUSED")], None),
        ("RESUME", [told("PAUSED"), told("FINISHED")], None),
        ("RESUME", [told("RUNNING")], None),
        ("PAUSE", [told("FINISHED")], "replay rep_1 is FINISHED: nothing of it is left to pause"),
        ("RESUME", [told("STOPPED")], "replay rep_1 is STOPPED: nothing of it is left to resume"),
    ],
)
def test_what_cannot_be_done_with_a_replay_is_told(verb: str, parts: list[dict[str, Any]], refused: str | None) -> None:
    assert (why_not(verb, replay(*parts)) or "").startswith(refused or "")
    assert (why_not(verb, replay(*parts)) is None) == (refused is None)
