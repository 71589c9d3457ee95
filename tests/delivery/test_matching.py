"""Which events a subscription wants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.delivery.matching import Filter, Scalar, filter_holds, matches, parse_filter, why_filter_refused, why_pattern_refused


@pytest.mark.parametrize(
    ("event_type", "patterns", "wanted"),
    [
        ("payin.success", ["payin.success"], True),
        ("payin.success", ["payin.failed"], False),
        ("payin.success", ["payin.failed", "payin.success"], True),
        ("payin.success", ["payin.*"], True),
        ("payin.a.b", ["payin.*"], True),
        ("payin.a.b", ["payin.a.*"], True),
        ("payin.a", ["payin.a.*"], False),
        ("payin", ["payin.*"], False),
        ("payin.", ["payin.*"], False),
        ("payins.success", ["payin.*"], False),
        ("payout.success", ["payin.*"], False),
        ("anything.at.all", ["*"], True),
        ("anything", [], False),
        ("Payin.success", ["payin.*"], False),
    ],
)
def test_a_type_matches_exactly_below_a_prefix_or_always(event_type: str, patterns: list[str], wanted: bool) -> None:
    assert matches(event_type, patterns) == wanted


@pytest.mark.parametrize("pattern", ["*", "payin.*", "payin.success", "payin", "payin.a.b.*", "com.example/pay-in_2"])
def test_a_good_pattern_is_taken(pattern: str) -> None:
    assert why_pattern_refused(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "an empty part"),
        (".", "an empty part"),
        ("payin.", "an empty part"),
        (".payin", "an empty part"),
        ("payin..*", "an empty part"),
        ("pay*", "not its whole last part"),
        ("*.success", "not its whole last part"),
        ("payin.**", "not its whole last part"),
        ("payin.*.done", "not its whole last part"),
        ("payin success", "spaces"),
        ("payin.\n", "spaces"),
        ("p" * 201, "201 characters"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_reason(pattern: str, why: str) -> None:
    assert why in (why_pattern_refused(pattern) or "")


@given(st.text(min_size=1, max_size=30))
def test_a_type_that_is_a_good_pattern_matches_itself_and_the_prefixes_above_it(event_type: str) -> None:
    if why_pattern_refused(event_type) is None and "*" not in event_type:
        parts = event_type.split(".")
        assert matches(event_type, [event_type])
        assert all(matches(event_type, [".".join(parts[:n]) + ".*"]) for n in range(1, len(parts)))


DATA = {
    "currency": "PKR",
    "amount": 100,
    "fee": 1.5,
    "test": True,
    "count": 1,
    "note": None,
    "tags": ["a", "b", 3],
    "payer": {"country": "PK", "wallets": ["easypaisa", "jazzcash"], "address": {"city": "Lahore"}},
    "items": [{"sku": "x"}],
    "empty": [],
}


@pytest.mark.parametrize(
    ("path", "values_json", "wanted"),
    [
        ("currency", ['"PKR"'], True),
        ("currency", ['"USD"'], False),
        ("currency", ['"USD"', '"PKR"'], True),
        ("currency", ['"pkr"'], False),
        ("payer.country", ['"PK"'], True),
        ("payer.address.city", ['"Lahore"'], True),
        ("payer.address.city.street", ['"Lahore"'], False),
        ("payer", ['"PK"'], False),
        ("payer.missing", ["null"], False),
        ("missing", ["null"], False),
        ("note", ["null"], True),
        ("note", ["0", "false", '""'], False),
        ("amount", ["100"], True),
        ("amount", ["100.0"], True),
        ("amount", ["1e2"], True),
        ("amount", ['"100"'], False),
        ("fee", ["1.5"], True),
        ("test", ["true"], True),
        ("test", ["1"], False),
        ("test", ["1.0"], False),
        ("count", ["1"], True),
        ("count", ["true"], False),
        ("tags", ['"b"'], True),
        ("tags", ["3.0"], True),
        ("tags", ['"c"'], False),
        ("payer.wallets", ['"visa"', '"jazzcash"'], True),
        ("items.sku", ['"x"'], False),
        ("items.0.sku", ['"x"'], False),
        ("empty", ["null"], False),
    ],
)
def test_a_filter_holds_where_one_of_its_values_is_at_its_path(path: str, values_json: list[str], wanted: bool) -> None:
    assert filter_holds([parse_filter(path, values_json)], DATA) == wanted


def test_all_filters_must_hold() -> None:
    holds, fails = Filter("currency", ("PKR",)), Filter("amount", (5,))

    assert filter_holds([], DATA)
    assert filter_holds([holds, holds], DATA)
    assert not filter_holds([holds, fails], DATA)
    assert not filter_holds([fails, holds], DATA)


@pytest.mark.parametrize("data", [None, "PKR", 3, ["currency"], [{"currency": "PKR"}]])
def test_data_that_is_no_object_has_nothing_at_any_path(data: object) -> None:
    assert filter_holds([], data)
    assert not filter_holds([Filter("currency", ("PKR", None))], data)


@pytest.mark.parametrize(
    ("path", "values_json", "why"),
    [
        ("", ["1"], "an empty part"),
        ("payer..country", ["1"], "an empty part"),
        ("payer.", ["1"], "an empty part"),
        ("p" * 201, ["1"], "201 characters"),
        ("payer", [], "0 values"),
        ("payer", ["1"] * 101, "101 values"),
        ("payer", ["1", "PKR"], "not JSON"),
        ("payer", [""], "not JSON"),
        ("payer", ["NaN"], "not JSON"),
        ("payer", ["1e999"], "not JSON"),
        ("payer", ["[1]"], "give a string, a number"),
        ("payer", ["{}"], "give a string, a number"),
        ("payer", ["[" * 1_000], "give a string, a number"),
        ("payer", ["[" * 500 + "]" * 500], "give a string, a number"),
        ("payer", ['"' + "x" * 1_000 + '"'], "1002 characters"),
        ("payer", ['"\ud800"'], "not JSON"),
    ],
)
def test_a_bad_filter_is_refused_with_its_reason(path: str, values_json: list[str], why: str) -> None:
    assert why in (why_filter_refused(path, values_json) or "")
    with pytest.raises(ValueError, match=why):
        parse_filter(path, values_json)


scalars: st.SearchStrategy[Scalar] = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(scalars, st.lists(scalars, max_size=3))
def test_a_value_is_found_alone_and_within_a_list(value: Scalar, others: list[Scalar]) -> None:
    condition = Filter("a.b", (value,))

    assert filter_holds([condition], {"a": {"b": value}})
    assert filter_holds([condition], {"a": {"b": [*others, value]}})
