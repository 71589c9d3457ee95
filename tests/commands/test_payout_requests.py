"""What is asked of payouts by hand is whole before it is written, and what cannot be answered is refused with its reason."""

from typing import Any

import pytest

from streams.commands.payout_requests import Asked, Item, batch, command, due_ms, metadata_in, submit
from streams.errors import ConfigurationError

NOW = 1_700_000_000_000
ASKED = Asked("cmd_1", "m1", "ann", NOW, "t-1")
ITEM = Item("b1", "12.50", None, "PKR", "mobile_wallet", "p1")
USUAL = Item(currency="PKR", channel="mobile_wallet")


def item(**changes: Any) -> Item:
    return Item(**{**{name: getattr(ITEM, name) for name in ITEM.__struct_fields__}, **changes})


def test_a_submission_says_all_that_was_given_and_its_id_is_its_key_where_it_has_no_other() -> None:
    made = submit(ASKED, item(scheduled="2h", metadata={"a": "b"}), "B", 3)

    assert (made["id"], made["merchant"], made["kind"], made["issued_by"], made["trace_id"]) == ("cmd_1", "m1", "SUBMIT", "ann", "t-1")
    assert made["submit"] == {
        "payout_id": "p1", "idempotency_key": "p1", "beneficiary_id": "b1", "amount": "12.50", "amount_minor": None, "currency": "PKR",
        "channel": "mobile_wallet", "scheduled_ms": NOW + 7_200_000, "batch_id": "B", "batch_index": 3, "metadata": {"a": "b"},
    }  # fmt: skip
    assert submit(ASKED, item(idempotency_key="k"))["submit"]["idempotency_key"] == "k"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"beneficiary_id": None}, "beneficiary_id"),
        ({"currency": None, "channel": None}, "currency, channel"),
        ({"amount": None}, "either an amount"),
        ({"amount_minor": 1_250}, "either an amount"),
        ({"payout_id": "p 1"}, "without spaces"),
        ({"scheduled": "tomorrow"}, "no time to come"),
    ],
)
def test_a_submission_with_something_missing_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        submit(ASKED, item(**changes))


def test_an_item_has_both_a_batch_and_a_place_in_it() -> None:
    with pytest.raises(ConfigurationError, match="batch and its index"):
        submit(ASKED, ITEM, "B")


def test_a_merchant_that_could_be_no_key_is_refused_for_nobody_could_be_answered() -> None:
    with pytest.raises(ConfigurationError, match="merchant 'm 1'"):
        command(Asked("cmd_1", "m 1", "ann", NOW), "CANCEL", {"payout_id": "p1"})


def test_a_file_becomes_a_header_and_a_command_for_each_line_with_the_same_names_each_time() -> None:
    lines = [b'{"beneficiary_id": "b1", "amount_minor": 5}', b'{"beneficiary_id": "b2", "amount_minor": 7, "payout_id": "x"}']
    header, *items = batch(ASKED, "B", lines, USUAL)

    assert header["submit_batch"] == {"batch_id": "B", "items_total": 2, "amount_minor_total": 12, "currency": "PKR"}
    assert [(each["id"], each["submit"]["payout_id"], each["submit"]["batch_index"]) for each in items] == [
        ("cmd_1-0", "B-0", 0), ("cmd_1-1", "x", 1),
    ]  # fmt: skip
    assert all(each["submit"]["channel"] == "mobile_wallet" for each in items)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "1 to 100000 items, and this one has 0"),
        ([b"no"], "line 1 is no payout"),
        ([b'{"beneficiary_id": "b1", "amount": 1.5}'], "line 1 is no payout"),
        ([b'{"beneficiary_id": "b1", "amount": "1", "bogus": 1}'], "bogus"),
        ([b'{"beneficiary_id": "b1", "amount": "1"}', b'{"amount": "1"}'], "line 2: a payout takes beneficiary_id"),
        ([b'{"beneficiary_id": "b1", "amount": "1", "payout_id": "a"}'] * 2, "line 2 has the payout_id 'a' of line 1"),
        (
            [b'{"beneficiary_id": "b1", "amount": "1", "idempotency_key": "B-1"}', b'{"beneficiary_id": "b1", "amount": "1"}'],
            "line 2 has the idempotency_key 'B-1' of line 1",
        ),
    ],
)
def test_a_file_with_one_bad_line_is_refused_as_a_whole(lines: list[bytes], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        batch(ASKED, "B", lines, USUAL)


def test_without_minor_units_of_one_currency_there_is_no_control_sum() -> None:
    for line in (b'{"beneficiary_id": "b1", "amount": "1"}', b'{"beneficiary_id": "b1", "amount_minor": 1, "currency": "BDT"}'):
        header = batch(ASKED, "B", [b'{"beneficiary_id": "b1", "amount_minor": 5}', line], USUAL)[0]
        assert "amount_minor_total" not in header["submit_batch"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", NOW + 90_000), ("2h", NOW + 7_200_000), ("2023-11-14T22:13:20Z", NOW), ("2023-11-14T22:13:21Z", NOW + 1_000)],
)
def test_a_time_to_come_is_an_instant_or_a_span_from_now(text: str, expected: int) -> None:
    assert due_ms(text, NOW) == expected


def test_metadata_are_pairs() -> None:
    assert metadata_in(["a=b", "c=d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    with pytest.raises(ConfigurationError, match="write name=value"):
        metadata_in(["a"])
