"""`hookline dlq` as a person types it, on a real broker, with somebody who plays the replay agent."""

import json
from typing import Any

import pytest

from streams.errors import ConfigurationError, HooklineError
from tests.commands.ground import PARTITIONS, Ground, finished

pytestmark = pytest.mark.kafka


@pytest.fixture
def letters(ground: Ground) -> Ground:
    """Three that nobody has dealt with, and one that was discarded."""
    ground.write_letter("l1")
    ground.write_letter("l2", 1, reason="GONE", merchant="m2", subscription_id="sub_2", event_id="e2", dead_ms=1_700_000_001_000)
    ground.write_letter("l3", kind="RECORD", reason="MALFORMED", payload=b"\xff\x00", merchant=None, event_id=None, event_type=None)
    ground.write_letter("l4")
    for name, triage in (("l1", "ACKNOWLEDGED"), ("l4", "DISCARDED")):
        ground.write_letter(
            name, payload=None, history=[], triage=triage, triage_by="mia", triage_note="known", triage_ms=1_700_000_002_000
        )
    return ground


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in found]


def test_the_depth_is_counted_by_reason(letters: Ground) -> None:
    groups = {each["reason"]: (each["open"], each["acknowledged"]) for each in letters.json("dlq", "list")}
    assert groups == {"EXHAUSTED": (0, 1), "GONE": (1, 0), "MALFORMED": (1, 0)}
    said = letters.run("dlq", "list")
    assert "0 open, 1 acknowledged" in said and "3 in all" in said


LISTED: list[tuple[list[str], list[str]]] = [
    (["--limit", "9"], ["l2", "l1", "l3"]),
    (["--limit", "1"], ["l2"]),
    (["--reason", "gone"], ["l2"]),
    (["--merchant", "m1"], ["l1"]),
    (["--subscription", "sub_2"], ["l2"]),
    (["--event", "e1"], ["l1"]),
    (["--type", "payout.failed"], []),
    (["--since", "2023-11-14T22:13:21Z"], ["l2"]),
    (["--until", "2023-11-14T22:13:21Z"], ["l1", "l3"]),
    (["--since", "1h"], []),
    (["--triage", "discarded"], ["l4"]),
]


def test_letters_are_listed_by_what_is_asked_for(letters: Ground) -> None:
    """One ground for all of the table: making topics is what takes the time."""
    assert [(filters, ids(letters.json("dlq", "list", *filters))) for filters, _ in LISTED] == LISTED
    said = letters.run("dlq", "list", "--limit", "9").splitlines()
    assert [line for line in said if line in ("l1", "l2", "l3", "l4")] == ["l2", "l1", "l3"]


def test_all_of_a_letter_is_shown_with_what_was_done_about_it(letters: Ground) -> None:
    said = letters.run("dlq", "show", "l1")
    for part in ("EXHAUSTED", "ACKNOWLEDGED", "mia", "known", "no answer within 15 s", '"id": "e1"'):
        assert part in said
    shown = letters.json("dlq", "show", "l1")
    assert (shown["payload"], shown["triage_note"], shown["history"][0]["ambiguous"]) == ('{"id":"e1"}', "known", True)


def test_a_payload_that_is_no_text_is_shown_as_bytes(letters: Ground) -> None:
    assert "ff00" in letters.run("dlq", "show", "l3")
    assert letters.json("dlq", "show", "l3")["payload"] == {"base64": "/wA="}


def test_a_letter_that_there_is_not_is_told_with_those_of_its_event(letters: Ground) -> None:
    with pytest.raises(ConfigurationError, match=r"'e2' is an event\. Its dead letters: l2"):
        letters.run("dlq", "show", "e2")
    with pytest.raises(ConfigurationError, match="there is no dead letter 'l9'"):
        letters.run("dlq", "show", "l9")


# What is asked of the agent


def test_an_empty_dlq_says_so(ground: Ground) -> None:
    assert "no dead letters" in ground.run("dlq", "list")
    assert ground.json("dlq", "list", "--event", "e1") == []
    assert "no dead letter is meant" in ground.run("dlq", "list", "--event", "e1")


def test_a_replay_reaches_every_partition_and_is_followed_to_its_end(ground: Ground) -> None:
    with ground.agent(finished):
        told = ground.json("dlq", "replay", "e1", "--subscription", "sub_1", "--rate", "5", "--note", "their fault", "--by", "mia")

    assert (told["standing"], told["looked_at"], told["matched"], told["sent"], told["skipped"]) == ("FINISHED", 10, 6, 4, 2)
    assert told["reasons"] == ["one had no body"]
    written = ground.requests()
    assert len(written) == PARTITIONS and written[0] == written[1]
    expected = {
        "action": "START", "from_log": "DEAD_LETTERS", "event_id": "e1", "subscription_id": "sub_1", "rate_per_s": 5.0,
        "note": "their fault", "requested_by": "mia", "dry_run": False, "id": told["id"],
    }  # fmt: skip
    assert {name: written[0][name] for name in expected} == expected
    assert told["id"].startswith("rep_")


def test_all_that_the_filters_leave_is_replayed_once_the_number_is_confirmed(letters: Ground) -> None:
    refused = letters.invoke("dlq", "replay-all", "--reason", "exhausted", given="n\n")
    assert refused.exit_code == 1 and "Replay 1 dead letter?" in refused.output
    assert letters.requests() == []

    with letters.agent(finished):
        result = letters.invoke("dlq", "replay-all", "--since", "2023-11-14T00:00:00Z", given="y\n")
    assert "Replay 3 dead letters of 2 merchants?" in result.output
    assert "FINISHED: 10 looked at, 6 matched, 4 sent, 2 skipped" in result.stdout
    assert letters.requests()[0]["from_ms"] == 1_699_920_000_000


def test_where_nothing_is_meant_nothing_is_asked(letters: Ground) -> None:
    assert "there is nothing to do" in letters.invoke("dlq", "replay-all", "--merchant", "m9").output
    assert letters.requests() == []


def test_a_dry_run_asks_nobody_and_sends_nothing(letters: Ground) -> None:
    with letters.agent(finished):
        said = letters.run("dlq", "replay-all", "--dry-run")
    assert "6 matched, none sent, for it was a dry run" in said
    assert letters.requests()[0]["dry_run"] is True


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["acknowledge", "l1"], {"action": "ACKNOWLEDGE", "dead_letter_id": "l1"}),
        (["discard", "--event", "e1", "--yes"], {"action": "DISCARD", "event_id": "e1"}),
        (["discard", "--reason", "gone", "--merchant", "m2", "--yes"], {"action": "DISCARD", "reason": "GONE", "merchant": "m2"}),
    ],
)
def test_letters_are_dealt_with_by_id_event_or_filters(ground: Ground, arguments: list[str], expected: dict[str, Any]) -> None:
    with ground.agent(finished):
        ground.run("dlq", *arguments, "--note", "test data")

    request = ground.requests()[0]
    assert {name: request[name] for name in expected} == expected
    assert request["note"] == "test data"


def test_discarding_by_filters_asks_first(letters: Ground) -> None:
    refused = letters.invoke("dlq", "discard", "--event", "e1", "--note", "x", given="n\n")

    assert refused.exit_code == 1 and "Discard 1 dead letter?" in refused.output
    assert letters.requests() == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["discard", "--note", "x"], "say which dead letters to discard"),
        (["list", "--reason", "nonsense"], "there is no reason 'nonsense'"),
        (["list", "--since", "yesterday"], "'yesterday' is no point in time"),
        (["replay", "e1", "--rate", "0"], "the rate a second is 0"),
    ],
)
def test_what_cannot_be_asked_is_told_and_nothing_is_written(ground: Ground, arguments: list[str], reason: str) -> None:
    with pytest.raises(HooklineError, match=reason):
        ground.run("dlq", *arguments)
    assert ground.requests() == []


def test_a_triage_without_a_note_is_refused(ground: Ground) -> None:
    assert ground.invoke("dlq", "discard", "l1").exit_code == 2
    assert ground.requests() == []


def test_an_event_without_dead_deliveries_is_a_failure(ground: Ground) -> None:
    with ground.agent(lambda request, partition: [{"standing": "FINISHED"}]):
        result = ground.invoke("dlq", "replay", "e9", "--json")

    assert result.exit_code == 1
    assert "there is no dead delivery of event e9" in result.stderr
    assert json.loads(result.stdout)["standing"] == "FINISHED"


def test_a_dead_delivery_that_could_not_be_sent_is_a_failure_with_the_reason(ground: Ground) -> None:
    with ground.agent(lambda request, partition: [{"standing": "FINISHED", "matched": 1, "skipped": 1, "reason": "it is disabled"}]):
        result = ground.invoke("dlq", "replay", "e1")

    assert result.exit_code == 1
    assert "it is disabled" in result.stdout and "Nothing was done" in result.stderr


def test_a_partition_that_refuses_makes_it_a_failure_with_the_reason(ground: Ground) -> None:
    def refusing(request: Any, partition: int) -> list[dict[str, Any]]:
        return finished(request, partition) if partition else [{"standing": "REFUSED", "reason": "another replay runs"}]

    with ground.agent(refusing):
        result = ground.invoke("dlq", "replay-all", "--yes")

    assert result.exit_code == 1
    assert "REFUSED" in result.stdout and "another replay runs" in result.stdout
