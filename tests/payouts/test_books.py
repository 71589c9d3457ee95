"""The books find every disagreement, and take what workers do meanwhile for none."""

from typing import Any

import pytest

from streams.payouts.books import Books
from streams.payouts.ledger import Balances
from tests.payouts.test_audit import FEE, FUNDING, HELD, PAYOUT, RELEASE

PAYOUT_ENTRIES = {
    "reserved": {**HELD, "id": "m/p/reservation"},
    "paid": {**PAYOUT, "id": "m/p/payout", "pending_id": "m/p/reservation"},
    "fee": {**FEE, "id": "m/p/fee", "pending_id": "m/p/reservation"},
    "released": {**RELEASE, "id": "m/p/release", "pending_id": "m/p/reservation"},
}
BEFORE, HOLDING, AFTER = Balances(100, 0, 0, 0, -100), Balances(0, 100, 0, 0, -100), Balances(0, 0, 10, 90, -100)


def books(*entries: str, watched: tuple[str, ...] = ()) -> Books:
    made = Books()
    for entry in (FUNDING, *(PAYOUT_ENTRIES[name] for name in entries)):
        made.take(entry)
    made.watch()
    for name in watched:
        made.take(PAYOUT_ENTRIES[name])
    return made


def status(state: str, net: int = 90, fee: int = 10) -> dict[str, dict[str, Any]]:
    return {"m/p": {"state": state, "net_minor": net, "fee_minor": fee}}


@pytest.mark.parametrize(
    ("entries", "state"),
    [
        ((), "SCHEDULED"), ((), "FAILED"), ((), "REFUSED"), (("reserved",), "POLLING"), (("reserved",), "STUCK"),
        (("reserved", "paid", "fee"), "SUCCESS"), (("reserved", "released"), "FAILED"), (("reserved", "released"), "CANCELLED"),
    ],
)  # fmt: skip
def test_a_payout_that_stands_as_its_entries_say_is_no_difference(entries: tuple[str, ...], state: str) -> None:
    assert books(*entries).differences_of_payouts(status(state)) == []


@pytest.mark.parametrize(
    ("entries", "found", "difference"),
    [
        ((), status("SUCCESS"), "is SUCCESS, and its reservation is nothing reserved"),
        (("reserved",), status("FAILED"), "is FAILED, and its reservation is pending"),
        (("reserved", "released"), status("SUCCESS"), "its reservation is VOIDED"),
        (("reserved", "released"), status("STUCK"), "its reservation is VOIDED"),
        (("reserved", "paid", "fee"), status("CANCELLED"), "its reservation is POSTED"),
        (("reserved", "paid", "fee"), status("SUCCESS", net=91), "says 91 paid"),
        (("reserved", "paid", "fee"), status("SUCCESS", fee=9), "a fee of 9"),
        (("reserved",), {}, "m/p/reservation belongs to no payout"),
    ],
)
def test_a_payout_that_stands_otherwise_is_one(entries: tuple[str, ...], found: dict[str, Any], difference: str) -> None:
    [line] = books(*entries).differences_of_payouts(found)
    assert difference in line


@pytest.mark.parametrize("kept", [BEFORE, HOLDING, AFTER])
def test_kept_balances_of_any_moment_since_it_is_watched_are_right(kept: Balances) -> None:
    watched = books(watched=("reserved", "paid", "fee"))
    assert watched.differences_of_balances({("m", "PKR"): kept}) == []


@pytest.mark.parametrize("kept", [{("m", "PKR"): BEFORE}, {}, {("m", "PKR"): AFTER, ("x", "PKR"): Balances(1)}])
def test_kept_balances_of_no_such_moment_are_a_difference(kept: dict[tuple[str, str], Balances]) -> None:
    [line] = books("reserved", "paid", "fee").differences_of_balances(kept)
    assert "is kept as" in line


@pytest.mark.parametrize("state", ["SCHEDULED", "SUBMITTING", "SUCCESS"])
def test_a_payout_that_went_on_while_it_was_looked_at_is_no_difference(state: str) -> None:
    assert books(watched=("reserved", "paid", "fee")).differences_of_payouts(status(state)) == []
    assert books(watched=("reserved",)).differences_of_payouts({}) == []
