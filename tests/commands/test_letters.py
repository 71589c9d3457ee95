"""Dead letters as they stand, folded from the letters and from what was done about them."""

from typing import Any

import pytest

from streams.commands.letters import Letters, grouped
from streams.commands.requests import TRIAGES, Selection

USUAL: dict[str, Any] = {
    "reason": "EXHAUSTED", "event_id": "e1", "event_type": "payin.success", "source": "s", "subscription_id": "sub_1", "merchant": "m1",
    "dead_ms": 100, "triage": "OPEN", "triage_by": None, "triage_note": None, "triage_ms": None, "payload": b"{}",
    "history": [{"number": 1}], "headers": [], "payload_size": 2,
}  # fmt: skip


def letter(name: str, **others: Any) -> dict[str, Any]:
    return {**USUAL, "id": name, **others}


def about(name: str, triage: str, **others: Any) -> dict[str, Any]:
    """What is written when somebody has done something about a letter."""
    return letter(name, payload=None, history=[], payload_size=0, triage=triage, triage_by="mia", triage_ms=200, **others)


def folded(*records: dict[str, Any], whole: bool = True) -> Letters:
    letters = Letters(lambda _: whole)
    for record in records:
        letters.apply(record)
    return letters


def test_what_was_done_about_a_letter_leaves_it_whole() -> None:
    found = folded(letter("l1"), about("l1", "ACKNOWLEDGED", triage_note="known"), about("l1", "DISCARDED", triage_note="test data")).by_id[
        "l1"
    ]

    assert (found["payload"], found["payload_size"], len(found["history"])) == (b"{}", 2, 1)
    assert (found["triage"], found["triage_by"], found["triage_note"]) == ("DISCARDED", "mia", "test data")


def test_a_letter_that_dies_again_is_open_again() -> None:
    found = folded(letter("l1"), about("l1", "REPLAYED"), letter("l1", payload=b"again")).by_id["l1"]

    assert (found["triage"], found["payload"]) == ("OPEN", b"again")


def test_of_a_letter_that_has_expired_its_triage_is_still_told() -> None:
    assert folded(about("l1", "DISCARDED")).by_id["l1"]["triage"] == "DISCARDED"


def test_a_list_keeps_neither_payloads_nor_histories() -> None:
    found = folded(letter("l1", headers=[{"name": "a", "value": b"b"}]), whole=False).by_id["l1"]

    assert not {"payload", "history", "headers"} & set(found)
    assert found["payload_size"] == 2


LETTERS = folded(
    letter("a"),
    letter("b", reason="GONE", dead_ms=200, subscription_id="sub_2"),
    letter("c", event_id="e2", event_type="payout.failed", merchant="m2", dead_ms=300),
    letter("d", dead_ms=300, source="other"),
    letter("e"), about("e", "ACKNOWLEDGED"),
    letter("f"), about("f", "DISCARDED"),
    letter("g"), about("g", "REPLAYED"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (Selection(), "cdbae"),
        (Selection(dead_letter_id="b"), "b"),
        (Selection(reason="GONE"), "b"),
        (Selection(subscription_id="sub_2"), "b"),
        (Selection(merchant="m2"), "c"),
        (Selection(event_type="payout.failed"), "c"),
        (Selection(event_id="e2"), "c"),
        (Selection(source="other"), "d"),
        (Selection(from_ms=200), "cdb"),
        (Selection(to_ms=200), "ae"),
        (Selection(from_ms=200, to_ms=300), "b"),
        (Selection(merchant="m1", from_ms=300), "d"),
        (Selection(merchant="nobody"), ""),
    ],
)
def test_letters_are_chosen_by_all_that_is_given_the_newest_first(selection: Selection, names: str) -> None:
    assert "".join(each["id"] for each in LETTERS.chosen(selection)) == names


def test_letters_that_were_dealt_with_are_shown_when_asked_for() -> None:
    assert [each["id"] for each in LETTERS.chosen(Selection(), frozenset({"DISCARDED"}))] == ["f"]
    assert len(LETTERS.chosen(Selection(), frozenset(TRIAGES))) == 7


def test_groups_count_by_reason_the_most_frequent_first() -> None:
    exhausted, gone = grouped(LETTERS.chosen(Selection()))

    assert (exhausted.reason, exhausted.open, exhausted.acknowledged) == ("EXHAUSTED", 3, 1)
    assert (exhausted.subscriptions, exhausted.merchants, exhausted.oldest_ms, exhausted.newest_ms) == (1, 2, 100, 300)
    assert (gone.reason, gone.open) == ("GONE", 1)
    assert grouped([]) == []
