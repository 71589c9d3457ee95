"""The ledger's rules: what a movement of money makes of a merchant's accounts, or why it is refused. Pure.

A merchant has five accounts in each currency. Money moves between two of them, so that their sum is zero at all times:

    external ──funding──► available ──reservation──► held ──payout──► settled
                              ▲                        ├─────fee────► fees
                              └────────release─────────┘

`external` is the world outside and stands below zero by what came in; no other account goes below zero. A reservation is pending
until it is posted (payout and fee) or voided (release), exactly once.
"""

from typing import Literal

import msgspec

Account = Literal["available", "held", "fees", "settled", "external"]
TransferState = Literal["PENDING", "POSTED", "VOIDED"]
Purpose = Literal["FUNDING", "RESERVATION", "PAYOUT", "FEE", "RELEASE", "CORRECTION"]

BALANCE_MAX = 2**63 - 1


class Balances(msgspec.Struct, frozen=True, array_like=True):
    """A merchant's accounts in one currency, in minor units."""

    available: int = 0
    held: int = 0
    fees: int = 0
    settled: int = 0
    external: int = 0

    @property
    def total(self) -> int:
        """Zero, or money was made or lost."""
        return self.available + self.held + self.fees + self.settled + self.external


NO_MONEY = Balances()


class Hold(msgspec.Struct, frozen=True, array_like=True):
    """What became of a reservation."""

    amount_minor: int
    state: TransferState = "PENDING"


class Movement(msgspec.Struct, frozen=True):
    """One transfer: an entry of the ledger. `name` makes it unique within what it belongs to."""

    name: str
    state: TransferState
    debit: Account
    credit: Account
    amount_minor: int
    purpose: Purpose
    ends_reservation: bool = False


class Booked(msgspec.Struct, frozen=True):
    """What is true after it. No movements: it was booked before, or there was nothing to do."""

    balances: Balances
    hold: Hold | None = None
    movements: tuple[Movement, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """Nothing was booked, and why."""

    reason: str
    detail: str


Answer = Booked | Refusal


def fund(balances: Balances, amount_minor: int) -> Answer:
    """Money that came in."""
    return _booked(balances, None, Movement("funding", "POSTED", "external", "available", amount_minor, "FUNDING"))


def reserve(balances: Balances, hold: Hold | None, amount_minor: int) -> Answer:
    """Hold money for a payout."""
    if hold is not None:
        if hold == Hold(amount_minor):
            return Booked(balances, hold)
        return Refusal("reserved_before", f"a reservation of {hold.amount_minor} is {hold.state} already, and {amount_minor} was asked for")
    movement = Movement("reservation", "PENDING", "available", "held", amount_minor, "RESERVATION")
    return _booked(balances, Hold(amount_minor), movement)


def post(balances: Balances, hold: Hold | None, fee_minor: int) -> Answer:
    """The payout was carried out: what was held leaves, and the fee stays with us."""
    if hold is None:
        return Refusal("nothing_reserved", "there is no reservation to post")
    if hold.state == "POSTED":
        return Booked(balances, hold)
    if hold.state == "VOIDED":
        return Refusal("voided_before", "the reservation was released already")
    if _is_no_integer(fee_minor) or not 0 <= fee_minor < hold.amount_minor:
        return Refusal("bad_fee", f"a fee of {fee_minor} leaves nothing of {hold.amount_minor}")
    payout = Movement("payout", "POSTED", "held", "settled", hold.amount_minor - fee_minor, "PAYOUT", ends_reservation=True)
    fee = Movement("fee", "POSTED", "held", "fees", fee_minor, "FEE", ends_reservation=True)
    return _booked(balances, Hold(hold.amount_minor, "POSTED"), payout, *([fee] if fee_minor else []))


def void(balances: Balances, hold: Hold | None) -> Answer:
    """Give back what was held. Safe when nothing was, and when it was given back before."""
    if hold is None or hold.state == "VOIDED":
        return Booked(balances, hold)
    if hold.state == "POSTED":
        return Refusal("posted_before", "the reservation was posted already")
    release = Movement("release", "VOIDED", "held", "available", hold.amount_minor, "RELEASE", ends_reservation=True)
    return _booked(balances, Hold(hold.amount_minor, "VOIDED"), release)


def _booked(balances: Balances, hold: Hold | None, *movements: Movement) -> Answer:
    for movement in movements:
        after = moved(balances, movement)
        if isinstance(after, Refusal):
            return after
        balances = after
    return Booked(balances, hold, movements)


def moved(balances: Balances, movement: Movement) -> Balances | Refusal:
    """The accounts after one transfer."""
    amount = movement.amount_minor
    if _is_no_integer(amount) or not 0 < amount <= BALANCE_MAX:
        return Refusal("bad_amount", f"{amount!r} cannot be moved: amounts are integers of minor units above zero")
    left, reached = getattr(balances, movement.debit) - amount, getattr(balances, movement.credit) + amount
    if left < 0 and movement.debit != "external":
        reason = "insufficient_funds" if movement.debit == "available" else "insufficient_hold"
        return Refusal(reason, f"{movement.debit} has {left + amount} and {amount} was asked for")
    if left < -BALANCE_MAX or reached > BALANCE_MAX:
        return Refusal("out_of_range", f"{movement.credit} would come to {reached}, which no ledger entry can hold")
    return msgspec.structs.replace(balances, **{movement.debit: left, movement.credit: reached})


def _is_no_integer(amount: object) -> bool:
    return type(amount) is not int
