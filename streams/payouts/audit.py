"""Recomputes the ledger from its entries alone and says what does not add up. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Audit:
    """All entries so far, taken in one by one in the order of the log."""

    balances: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    pending: dict[str, int] = field(default_factory=dict)
    """What of each reservation has neither been posted nor voided."""
    ended: dict[str, str] = field(default_factory=dict)
    """How each reservation ended."""
    amounts: dict[str, int] = field(default_factory=dict)
    """Of each transfer."""
    differences: list[str] = field(default_factory=list)
    entries: int = 0

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take in one record of the ledger."""
        name, amount = entry["id"], entry["amount_minor"]
        self.entries += 1
        if name in self.amounts:
            self.differences.append(f"{name} was booked twice")
        self.amounts[name] = amount
        if amount <= 0:
            self.differences.append(f"{name} moves {amount}")
        self.balances[entry["debit_account"]] -= amount
        self.balances[entry["credit_account"]] += amount
        if self.balances[entry["debit_account"]] < 0 and not entry["debit_account"].endswith("/external"):
            self.differences.append(f"{name} leaves {self.balances[entry['debit_account']]} in {entry['debit_account']}")
        if entry["state"] == "PENDING":
            self.pending[name] = amount
        elif entry["pending_id"] is not None:
            self._end(entry["pending_id"], name, entry["state"], amount)

    def _end(self, reservation: str, name: str, state: str, amount: int) -> None:
        if reservation not in self.pending:
            self.differences.append(f"{name} ends {reservation}, which was never made")
        if self.ended.setdefault(reservation, state) != state:
            self.differences.append(f"{reservation} was both posted and voided")
        self.pending[reservation] = self.pending.get(reservation, 0) - amount
        if self.pending[reservation] < 0:
            self.differences.append(f"{reservation} was ended for more than it held")

    def findings(self) -> list[str]:
        """Everything that does not add up, now."""
        found = list(self.differences)
        by_merchant: dict[str, int] = defaultdict(int)
        held: dict[str, int] = defaultdict(int)
        for account, balance in self.balances.items():
            by_merchant[account.rsplit("/", 1)[0]] += balance
            held["held"] += balance if account.endswith("/held") else 0
        found += [f"the accounts of {merchant} add up to {total}" for merchant, total in by_merchant.items() if total]
        if held["held"] != sum(self.pending.values()):
            found.append(f"{held['held']} are held, and reservations for {sum(self.pending.values())} are pending")
        found += [f"{name} was ended for {left} less than it held" for name, left in self.pending.items() if left and name in self.ended]
        return found
