"""The ledger: each movement in a table, and any order of movements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.payouts.ledger import (
    BALANCE_MAX,
    NO_MONEY,
    Answer,
    Balances,
    Booked,
    Hold,
    Movement,
    Refusal,
    fund,
    moved,
    post,
    reserve,
    void,
)

FUNDED = Balances(available=1_000, external=-1_000)
HOLDING = Balances(available=700, held=300, external=-1_000)
PENDING, POSTED, VOIDED = Hold(300), Hold(300, "POSTED"), Hold(300, "VOIDED")


@pytest.mark.parametrize(
    ("answer", "balances", "hold", "movements"),
    [
        (fund(NO_MONEY, 1_000), FUNDED, None, ["funding"]),
        (reserve(FUNDED, None, 300), HOLDING, PENDING, ["reservation"]),
        (reserve(HOLDING, PENDING, 300), HOLDING, PENDING, []),
        (post(HOLDING, PENDING, 20), Balances(700, 0, 20, 280, -1_000), POSTED, ["payout", "fee"]),
        (post(HOLDING, PENDING, 0), Balances(700, 0, 0, 300, -1_000), POSTED, ["payout"]),
        (post(HOLDING, POSTED, 20), HOLDING, POSTED, []),
        (void(HOLDING, PENDING), FUNDED, VOIDED, ["release"]),
        (void(FUNDED, VOIDED), FUNDED, VOIDED, []),
        (void(FUNDED, None), FUNDED, None, []),
    ],
)
def test_what_is_booked(answer: Answer, balances: Balances, hold: Hold | None, movements: list[str]) -> None:
    assert isinstance(answer, Booked)
    assert (answer.balances, answer.hold, [each.name for each in answer.movements]) == (balances, hold, movements)
    assert answer.balances.total == 0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reserve(FUNDED, None, 1_001), "insufficient_funds"),
        (reserve(NO_MONEY, None, 1), "insufficient_funds"),
        (reserve(HOLDING, PENDING, 299), "reserved_before"),
        (reserve(HOLDING, POSTED, 300), "reserved_before"),
        (reserve(HOLDING, VOIDED, 300), "reserved_before"),
        (post(FUNDED, None, 0), "nothing_reserved"),
        (post(HOLDING, VOIDED, 0), "voided_before"),
        (post(FUNDED, PENDING, 0), "insufficient_hold"),
        (post(HOLDING, PENDING, 300), "bad_fee"),
        (post(HOLDING, PENDING, -1), "bad_fee"),
        (post(HOLDING, PENDING, 1.5), "bad_fee"),  # type: ignore[arg-type]
        (void(HOLDING, POSTED), "posted_before"),
        (void(FUNDED, PENDING), "insufficient_hold"),
        (fund(NO_MONEY, 0), "bad_amount"),
        (fund(NO_MONEY, -5), "bad_amount"),
        (fund(NO_MONEY, 1.0), "bad_amount"),  # type: ignore[arg-type]
        (fund(NO_MONEY, True), "bad_amount"),
        (fund(Balances(available=BALANCE_MAX, external=-BALANCE_MAX), 1), "out_of_range"),
    ],
)
def test_what_is_refused(answer: Answer, reason: str) -> None:
    assert isinstance(answer, Refusal)
    assert answer.reason == reason


@pytest.mark.parametrize("account", ["available", "held", "fees", "settled"])
def test_no_account_of_ours_goes_below_zero(account: str) -> None:
    movement = Movement("x", "POSTED", account, "external", 1, "CORRECTION")  # type: ignore[arg-type]

    assert isinstance(moved(NO_MONEY, movement), Refusal)


@given(st.lists(st.tuples(st.sampled_from(["fund", "reserve", "post", "void"]), st.integers(0, 4), st.integers(-5, 500)), max_size=60))
def test_any_order_of_movements_makes_no_money_and_loses_none(steps: list[tuple[str, int, int]]) -> None:
    balances, holds = NO_MONEY, dict[int, Hold]()
    for kind, which, amount in steps:
        before = holds.get(which)
        match kind:
            case "fund":
                answer = fund(balances, amount)
            case "reserve":
                answer = reserve(balances, before, amount)
            case "post":
                answer = post(balances, before, min(amount, 7))
            case _:
                answer = void(balances, before)
        if isinstance(answer, Refusal):
            continue
        if kind != "fund" and before is not None and before.state != "PENDING":
            assert answer.hold == before and not answer.movements, "a reservation ends once"
        balances = answer.balances
        if kind != "fund" and answer.hold is not None:
            holds[which] = answer.hold
        assert balances.total == 0
        assert min(balances.available, balances.held, balances.fees, balances.settled) >= 0
        assert balances.held == sum(hold.amount_minor for hold in holds.values() if hold.state == "PENDING")
