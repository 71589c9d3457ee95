"""Compares what the ledger's entries come to with what is said elsewhere: the kept balances, and where each payout stands. Pure.

Workers go on while it is looked at. So the entries are read to an end, then what is to be compared, then the entries on to a later
end: what is said must have been true at some moment in between. A payout's entries and its status are one transaction, as are an
account's entries and its kept balances.
"""

from collections.abc import Mapping
from typing import Any, get_args

from streams.payouts.audit import Audit
from streams.payouts.ledger import Account, Balances

ACCOUNTS = get_args(Account)
UNTOUCHED = "nothing reserved"
HOLDS: Mapping[str, frozenset[str]] = {
    **{state: frozenset({"pending"}) for state in ("RESERVED", "SUBMITTING", "POLLING", "POSTING", "VOIDING", "STUCK")},
    "SUCCESS": frozenset({"POSTED"}),
    "FAILED": frozenset({UNTOUCHED, "VOIDED"}),
    "CANCELLED": frozenset({UNTOUCHED, "VOIDED"}),
    "SCHEDULED": frozenset({UNTOUCHED}),
    "REFUSED": frozenset({UNTOUCHED}),
}
"""What the ledger must have of a payout in each state."""


class Books:
    """The ledger, recomputed, and what it was at each moment since `watch`."""

    def __init__(self) -> None:
        self.audit = Audit()
        self._watched = False
        self._balances: dict[tuple[str, str], set[Balances]] = {}
        self._holds: dict[str, set[str]] = {}

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take in one record of the ledger."""
        place, reservation = account_of(entry["debit_account"])[:2], entry["pending_id"] or entry["id"]
        if self._watched:
            self._balances.setdefault(place, {self.balances(*place)})
            self._holds.setdefault(reservation, {self.hold(reservation)})
        self.audit.take(entry)
        if self._watched:
            self._balances[place].add(self.balances(*place))
            self._holds[reservation].add(self.hold(reservation))

    def watch(self) -> None:
        """From here on, remember each moment."""
        self._watched = True

    def balances(self, merchant: str, currency: str) -> Balances:
        """A merchant's accounts by the entries so far."""
        return Balances(*(self.audit.balances.get(f"{merchant}/{currency}/{name}", 0) for name in ACCOUNTS))

    def hold(self, reservation: str) -> str:
        """What has become of a reservation by the entries so far."""
        if reservation not in self.audit.pending:
            return UNTOUCHED
        return self.audit.ended.get(reservation, "pending")

    def accounts(self) -> list[tuple[str, str]]:
        """Each merchant and currency that the entries name."""
        return sorted({account_of(account)[:2] for account in self.audit.balances})

    def differences_of_balances(self, kept: Mapping[tuple[str, str], Balances]) -> list[str]:
        """Where the balances that the payouts role decides by are not those of the entries."""
        found = []
        for place in sorted({*kept, *self.accounts()}):
            moments = self._balances.get(place) or {self.balances(*place)}
            if (said := kept.get(place, Balances())) not in moments:
                found.append(f"{'/'.join(place)} is kept as {_told(said)} and comes to {_told(self.balances(*place))} by its entries")
        return found

    def differences_of_payouts(self, statuses: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Where a payout stands otherwise than its entries; `statuses` are by merchant and payout, as transfers name them."""
        found, known = [], set()
        for name, status in sorted(statuses.items()):
            reservation = f"{name}/reservation"
            known.add(reservation)
            moments = self._holds.get(reservation) or {self.hold(reservation)}
            allowed = HOLDS.get(status["state"], frozenset())
            if not moments & allowed:
                found.append(f"payout {name} is {status['state']}, and its reservation is {self.hold(reservation)}")
            elif status["state"] == "SUCCESS" and (booked := self._paid(name)) != (status["net_minor"], status["fee_minor"]):
                found.append(f"payout {name} says {status['net_minor']} paid and a fee of {status['fee_minor']}, and {booked} were booked")
        orphans = sorted(set(self.audit.pending) - known - set(self._holds))
        return [*found, *(f"{name} belongs to no payout that has a status" for name in orphans)]

    def _paid(self, name: str) -> tuple[int, int]:
        amounts = self.audit.amounts
        return amounts.get(f"{name}/payout", 0), amounts.get(f"{name}/fee", 0)


def account_of(account: str) -> tuple[str, str, str]:
    """Merchant, currency and purpose of an account's name; a merchant may have strokes in its own."""
    merchant, currency, purpose = account.rsplit("/", 2)
    return merchant, currency, purpose


def _told(balances: Balances) -> str:
    return " ".join(f"{name} {getattr(balances, name)}" for name in ACCOUNTS)
