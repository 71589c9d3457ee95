"""How many transfers a second the ledger's rules make in memory; beside it, the same sums in a plain dictionary, without any rule."""

import time

from bench.ground import Ground
from bench.registry import Measured, benchmark, median_of
from streams.payouts import ledger
from streams.payouts.ledger import Balances, Booked

PAYOUTS = 30_000
TRANSFERS = 3
"""Of each: a reservation, a payment and a fee."""
AMOUNT, FEE = 1_000, 10


@benchmark(name="ledger_transfers_per_s", unit="transfers/s", target=100_000, better="higher")
def ledger_transfers_per_s(ground: Ground) -> Measured:
    """Measure payouts that are reserved and posted."""
    return median_of(ground, lambda turn: Measured(by_rules(), bare()), ",.0f")


def by_rules() -> float:
    balances, made = Balances(AMOUNT * PAYOUTS, 0, 0, 0, -AMOUNT * PAYOUTS), 0
    began_s = time.perf_counter()
    for _ in range(PAYOUTS):
        reserved = ledger.reserve(balances, None, AMOUNT)
        assert isinstance(reserved, Booked)
        posted = ledger.post(reserved.balances, reserved.hold, FEE)
        assert isinstance(posted, Booked)
        balances, made = posted.balances, made + len(reserved.movements) + len(posted.movements)
    took_s = time.perf_counter() - began_s
    assert made == TRANSFERS * PAYOUTS and balances.total == 0 and balances.settled == PAYOUTS * (AMOUNT - FEE)
    return made / took_s


def bare() -> float:
    accounts = {"available": AMOUNT * PAYOUTS, "held": 0, "fees": 0, "settled": 0}
    steps = (("available", "held", AMOUNT), ("held", "settled", AMOUNT - FEE), ("held", "fees", FEE))
    began_s = time.perf_counter()
    for _ in range(PAYOUTS):
        for debit, credit, amount in steps:
            accounts[debit] -= amount
            accounts[credit] += amount
    return TRANSFERS * PAYOUTS / (time.perf_counter() - began_s)
