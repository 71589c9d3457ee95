"""`hookline ledger` on a real broker: books that agree are said to, and each disagreement is told and ends with a code."""

from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient

import schemas
from streams.payouts.ledger import Balances
from tests.commands.ground import PARTITIONS, Ground
from tests.log.clients import create
from topology.topics import CHANGELOG_PAYOUTS, LEDGER_ENTRIES, PAYOUT_STATUS

pytestmark = pytest.mark.kafka

AMOUNTS = {"available": 0, "held": 0, "fees": 10, "settled": 90, "external": -100}


class Books:
    """What the payouts role would have written about one payout."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        create(AdminClient(ground.kafka), ground.prefix, PARTITIONS, LEDGER_ENTRIES, PAYOUT_STATUS, CHANGELOG_PAYOUTS)
        self.entry("m1/funding/t", "external", "available", 100, "FUNDING")
        self.entry("m1/p1/reservation", "available", "held", 100, "RESERVATION", "PENDING")
        self.entry("m1/p1/payout", "held", "settled", 90, "PAYOUT", pending_id="m1/p1/reservation")
        self.entry("m1/p1/fee", "held", "fees", 10, "FEE", pending_id="m1/p1/reservation")
        self.keep(**AMOUNTS)
        self.status("SUCCESS")

    def entry(self, name: str, debit: str, credit: str, amount: int, purpose: str, state: str = "POSTED", **others: Any) -> None:
        value = {
            "id": name, "state": state, "debit_account": f"m1/PKR/{debit}", "credit_account": f"m1/PKR/{credit}", "amount_minor": amount,
            "currency": "PKR", "purpose": purpose, "merchant": "m1", "at_ms": 1, **others,
        }  # fmt: skip
        self.ground.write(LEDGER_ENTRIES, name.encode(), schemas.encode(schemas.LEDGER_TRANSFER, value))

    def keep(self, **amounts: int) -> None:
        self.ground.write(CHANGELOG_PAYOUTS, b"a/m1\0PKR", msgspec.msgpack.encode(Balances(**amounts)))

    def status(self, state: str) -> None:
        value = {
            "payout_id": "p1", "merchant": "m1", "state": state, "net_minor": 90, "fee_minor": 10, "currency": "PKR", "created_ms": 1,
            "updated_ms": 1,
        }  # fmt: skip
        self.ground.write(PAYOUT_STATUS, b"m1 p1", schemas.encode(schemas.PAYOUT_STATUS, value))


def test_books_that_agree_are_said_to(ground: Ground) -> None:
    Books(ground)

    assert ground.json("ledger", "verify") == {"entries": 4, "accounts": 5, "payouts": 1, "differences": []}
    assert ground.json("ledger", "balances") == [{"merchant": "m1", "currency": "PKR", **AMOUNTS}]
    assert ground.json("ledger", "balances", "--merchant", "m2") == []
    assert "0.90" in ground.run("ledger", "balances", "--currency", "PKR")


def test_each_disagreement_is_told_and_ends_with_a_code(ground: Ground) -> None:
    books = Books(ground)
    books.keep(**{**AMOUNTS, "available": 1})
    books.status("FAILED")
    books.entry("m1/p2/release", "held", "available", 5, "RELEASE", "VOIDED", pending_id="m1/p2/reservation")

    result = ground.invoke("ledger", "verify")
    assert result.exit_code == 1
    assert result.stdout == "5 entries, 5 accounts, 1 payouts, 7 differences\n"
    for difference in (
        "m1/p2/release leaves -5 in m1/PKR/held", "m1/p2/release ends m1/p2/reservation, which was never made",
        "m1/p2/reservation was ended for more than it held", "m1/PKR is kept as available 1", "payout m1/p1 is FAILED, and its",
        "m1/p2/reservation belongs to no payout", "m1/p2/reservation was ended for -5 less",
    ):  # fmt: skip
        assert difference in result.stderr
