"""Whether a payouts run kept its promises: the bank's own record beside the ledger's, payout by payout, and what was told."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import schemas
from streams.payouts.audit import Audit
from streams.payouts.payout import ENDED
from tests.payouts.harness import PayoutsRun
from topology import topics

FINAL_EVENTS = ("payout.success", "payout.failed", "payout.cancelled")


@dataclass
class Verdict:
    """All lists empty is right; each line says what is not."""

    never_over: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    """Of the ledger, by its entries alone."""
    otherwise_at_bank: list[str] = field(default_factory=list)
    told_wrong: list[str] = field(default_factory=list)
    dead_letters: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)

    @property
    def wrong(self) -> list[str]:
        return [*self.never_over, *self.differences, *self.otherwise_at_bank, *self.told_wrong, *self.dead_letters]


def judge(run: PayoutsRun, payouts: int) -> Verdict:
    """Look at all that came out."""
    run.read()
    verdict = Verdict(states=Counter(status["state"] for status in run.status.values()))
    if len(run.status) != payouts:
        verdict.never_over.append(f"{len(run.status)} payouts have a status of {payouts}")
    verdict.never_over += [f"{key} is {each['state']}" for key, each in run.status.items() if each["state"] not in (*ENDED, "STUCK")]
    entries = run.all_of(topics.LEDGER_ENTRIES, schemas.LEDGER_TRANSFER)
    audit = Audit()
    for entry in entries:
        audit.take(entry)
    verdict.differences = audit.findings()
    judge_bank(run, {entry["id"]: entry for entry in entries}, verdict)
    judge_events(run, verdict)
    verdict.dead_letters = [letter["detail"] for letter in run.all_of(topics.DLQ, schemas.DEAD_LETTER)]
    return verdict


def judge_bank(run: PayoutsRun, entries: dict[str, dict[str, Any]], verdict: Verdict) -> None:
    """What the bank has paid is what the ledger settled, and nothing of it was released."""
    paid = run.bank.paid()
    for key, status in run.status.items():
        settled = entries.get(f"{key}/payout", {}).get("amount_minor")
        if settled != paid.get(key) or (settled is not None) != (status["state"] == "SUCCESS"):
            verdict.otherwise_at_bank.append(f"{key} is {status['state']}, {settled} is settled, and the bank paid {paid.get(key)}")
        if f"{key}/release" in entries and key in paid:
            verdict.otherwise_at_bank.append(f"{key} was paid and released")
    verdict.otherwise_at_bank += [f"the bank paid {key}, which nobody asked for" for key in paid.keys() - run.status.keys()]
    if run.bank.forged:
        verdict.otherwise_at_bank.append(f"{run.bank.forged} requests were not signed as they should be")


def judge_events(run: PayoutsRun, verdict: Verdict) -> None:
    """Each end is told once, each submission once, and each payout that is stuck."""
    told = [event for event in run.all_of(topics.EVENTS, schemas.EVENT) if event["type"].startswith("payout.")]
    count = Counter((f"{event['merchant']}/{event['resource']}", event["type"]) for event in told)
    verdict.told_wrong += [f"{event} of {key} was told {times} times" for (key, event), times in count.items() if times != 1]
    for key, status in run.status.items():
        expected = 1 if status["state"] in ENDED else 0
        if sum(count[key, event] for event in FINAL_EVENTS) != expected:
            verdict.told_wrong.append(f"the end of {key}, which is {status['state']}, was not told {expected} times")
        was_held = any(step["to_state"] == "RESERVED" for step in status["history"])
        if count[key, "payout.submitted"] != was_held:
            verdict.told_wrong.append(f"the submission of {key} was told {count[key, 'payout.submitted']} times")
        was_stuck = sum(step["to_state"] == "STUCK" and step["from_state"] != "STUCK" for step in status["history"])
        if count[key, "payout.stuck"] != was_stuck:
            verdict.told_wrong.append(f"{key} was stuck {was_stuck} times, and that was told {count[key, 'payout.stuck']} times")
