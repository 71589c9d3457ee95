"""Money, in tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.payouts.money import EXPONENTS, MINOR_MAX, BadAmount, checked_minor, exponent_of, from_decimal, to_decimal


@pytest.mark.parametrize(
    ("currency", "exponent"),
    [("PKR", 2), ("BDT", 2), ("NPR", 2), ("EGP", 2), ("IQD", 3), ("USD", 2), ("EUR", 2), ("JPY", 0), ("VND", 0), ("KWD", 3), ("CLF", 4)],
)
def test_a_currency_has_its_decimals(currency: str, exponent: int) -> None:
    assert exponent_of(currency) == exponent


@pytest.mark.parametrize(
    ("text", "currency", "minor"),
    [
        ("1", "PKR", 100), ("1.5", "PKR", 150), ("1.50", "PKR", 150), ("0.01", "PKR", 1), ("1.500", "PKR", 150), ("007", "PKR", 700),
        ("1.234", "IQD", 1234), ("12", "JPY", 12), ("12.0", "JPY", 12), ("9999999999999.99", "PKR", 999_999_999_999_999),
    ],
)  # fmt: skip
def test_a_decimal_is_read_as_minor_units(text: str, currency: str, minor: int) -> None:
    assert from_decimal(text, currency) == minor


@pytest.mark.parametrize(
    ("text", "currency", "reason"),
    [
        ("1.001", "PKR", "finer"), ("0.0001", "IQD", "finer"), ("1.5", "JPY", "finer"), ("0", "PKR", "from 1"), ("0.00", "PKR", "from 1"),
        *((text, "PKR", "no amount") for text in ("-1", "+1", "1,5", "1e3", "", " 1", "1.", ".5", "NaN", "\u0661")),
        ("99999999999999.99", "PKR", "from 1"), ("1" * 17, "PKR", "no amount"), ("1", "pkr", "ISO 4217"), ("1", "XXX", "ISO 4217"),
    ],
)  # fmt: skip
def test_what_could_not_be_paid_exactly_is_refused_with_its_reason(text: str, currency: str, reason: str) -> None:
    with pytest.raises(BadAmount, match=reason):
        from_decimal(text, currency)


@pytest.mark.parametrize("minor", [0, -1, MINOR_MAX + 1])
def test_minor_units_are_bounded_too(minor: int) -> None:
    with pytest.raises(BadAmount):
        checked_minor(minor)


@pytest.mark.parametrize(("minor", "currency", "text"), [(1, "PKR", "0.01"), (150, "PKR", "1.50"), (5, "JPY", "5"), (-7, "IQD", "-0.007")])
def test_it_is_written_with_all_its_decimals(minor: int, currency: str, text: str) -> None:
    assert to_decimal(minor, currency) == text


@given(st.integers(1, MINOR_MAX), st.sampled_from(sorted(EXPONENTS)))
def test_what_is_written_reads_as_the_same(minor: int, currency: str) -> None:
    assert from_decimal(to_decimal(minor, currency), currency) == minor
