"""What is played on payouts, at the size of a test or of a proof."""

import random
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from streams.payouts.channels.demo import Behaviour
from streams.payouts.payout import ENDED
from tests.payouts.harness import AMOUNT, PayoutsRun
from tests.payouts.shards import command, submit

ALL_BEHAVIOURS: tuple[Behaviour, ...] = get_args(Behaviour)


def in_every_way(key: str) -> Behaviour:
    """Every way of behaving, by the payout's id."""
    return ALL_BEHAVIOURS[zlib.crc32(key.encode()) % len(ALL_BEHAVIOURS)]


def never_final_where_named(key: str) -> Behaviour:
    return "never final" if "/stuck" in key else "success"


@dataclass(frozen=True)
class Size:
    """How many, and how often it is struck."""

    payouts: int
    merchants: int
    kills: int


def crashes(run: PayoutsRun, size: Size, chance: random.Random, restart_broker: Callable[[], None] | None = None) -> None:
    """Payouts of many merchants, every tenth asked for twice, while workers are killed at random moments, and perhaps the broker."""
    merchants = [f"m{number}" for number in range(size.merchants)]
    for merchant in merchants:
        run.open_account(merchant, AMOUNT * size.payouts)
    run.start()
    commands = [{**submit(number), "merchant": merchants[number % size.merchants]} for number in range(size.payouts)]
    keys = [f"{each['merchant']}/{each['submit']['payout_id']}" for each in commands]
    strikes = size.kills + (restart_broker is not None)
    for strike in range(strikes + 1):
        first, beyond = (size.payouts * turn // (strikes + 1) for turn in (strike, strike + 1))
        run.send(again for number in range(first, beyond) for again in [commands[number]] * (2 if number % 10 == 0 else 1))
        if strike == strikes:
            break
        least = first + chance.randrange(max(1, (beyond - first) // 2))
        run.until(lambda least=least: len(run.status) >= least, f"{least} payouts have a status", timeout_s=600)  # type: ignore[misc]
        if restart_broker is not None and strike == strikes // 2:
            restart_broker()
        else:
            run.kill(chance.randrange(len(run.runs)), chance.randint(1, run.workers))
    run.until_all(keys, (*ENDED, "STUCK"), timeout_s=1_200)


def resolve_all(run: PayoutsRun) -> None:
    """A person asks the bank about each payout that is stuck, which decides it then, and says so here."""
    stuck = [key for key, each in run.status.items() if each["state"] == "STUCK"]
    for number, key in enumerate(stuck):
        payment = run.bank.payments.get(key)
        if payment is not None and payment.status == "pending":
            payment.status = "success" if number % 2 else "failed"
        is_paid = payment is not None and payment.status == "success"
        merchant, _, name = key.partition("/")
        body = {"payout_id": name, "status": "SUCCESS" if is_paid else "FAILED", "resolved_by": "ann", "notes": "phoned"}
        run.send([command("RESOLVE", body, merchant)])
    run.until_all(stuck, ENDED)


def scarce(run: PayoutsRun, asked: int, affordable: int) -> None:
    """More payouts at once than there is money for."""
    run.open_account("poor", AMOUNT * affordable)
    run.send({**submit(number), "merchant": "poor"} for number in range(asked))
    run.until_all((f"poor/p{number}" for number in range(asked)), ENDED)


def stuck_then_resolved(run: PayoutsRun) -> None:
    """Two payouts that never end at their channel; a person says that one was paid and the other was not."""
    run.open_account("slow", 10 * AMOUNT)
    ends = {"stuck-paid": "SUCCESS", "stuck-unpaid": "FAILED"}
    run.send({**submit(0, payout_id=name, idempotency_key=name), "merchant": "slow"} for name in ends)
    run.until_all((f"slow/{name}" for name in ends), ["STUCK"], timeout_s=300)
    for name, end in ends.items():
        body = {"payout_id": name, "status": end, "resolved_by": "ann", "notes": "phoned"}
        run.send([command("RESOLVE", body, "slow")])
        run.until_all([f"slow/{name}"], [end])
        run.bank.payments[f"slow/{name}"].status = "success" if end == "SUCCESS" else "failed"


def scheduled(run: PayoutsRun, payouts: int, wait_ms: int) -> list[tuple[int, int]]:
    """Payouts for later, at different times. When each was to begin, and when it began."""
    run.open_account("later", payouts * AMOUNT)
    now_ms = time.time_ns() // 1_000_000
    due = {f"p{number}": now_ms + wait_ms + number * wait_ms // payouts for number in range(payouts)}
    run.send({**submit(number, scheduled_ms=due[f"p{number}"]), "merchant": "later"} for number in range(payouts))
    run.until_all((f"later/{name}" for name in due), ["SUCCESS"])
    return [(due_ms, began_ms(run, f"later/{name}")) for name, due_ms in due.items()]


def began_ms(run: PayoutsRun, key: str) -> int:
    """When its money was held."""
    return next(int(step["at_ms"]) for step in run.status[key]["history"] if step["to_state"] == "RESERVED")


def batch(run: PayoutsRun, items: int, unpayable: int) -> None:
    """A batch of which some items are more than its channel takes."""
    run.open_account("many", items * AMOUNT)
    header = command("SUBMIT_BATCH", {"batch_id": "B", "items_total": items, "currency": "PKR"}, "many")
    run.send([header])
    run.send(
        {
            **submit(number, batch_id="B", batch_index=number, beneficiary_id="nobody" if number < unpayable else "b1"),
            "merchant": "many",
        }
        for number in range(items)
    )
    run.until(lambda: run.batches.get("many/B", {}).get("state") not in (None, "OPEN"), "the batch is complete", timeout_s=600)
