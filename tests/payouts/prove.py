"""Payouts at full size: `make prove`, with the figures in bench/proofs.json.

Run: python -m tests.payouts.prove [--only crashes,scarce,stuck,scheduled,batch] [--seed N]
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import schemas
from tests import sink
from tests.payouts import scenes
from tests.payouts.harness import AMOUNT, InThread, PayoutsRun
from tests.payouts.verdict import judge
from tests.proofs import Proof, show, write
from topology import broker, topics

Proofs = dict[str, Proof]

LATE_MS_MAX = 1_000
BATCH = 10_000
STUCK_SCALE = 60.0
"""30 minutes in 30 s."""


def crashes(run: PayoutsRun, chance: random.Random, brokers: Path) -> Proofs:
    """5,000 payouts of 50 merchants, every kind of channel; ten kills and a restart of the broker; then what is stuck is resolved."""
    size = scenes.Size(payouts=5_000, merchants=50, kills=10)

    def restart() -> None:
        running = broker.status(brokers)
        assert running is not None
        os.kill(running.nodes[0].pid, signal.SIGKILL)
        broker.start_node(brokers, running.nodes[0].id)

    began_s = time.monotonic()
    scenes.crashes(run, size, chance, restart)
    tell(f"{size.payouts} payouts in {time.monotonic() - began_s:.0f} s, {size.kills} kills and a restart of the broker")
    stuck = [key for key, each in run.status.items() if each["state"] == "STUCK"]
    needless = [key for key in stuck if scenes.in_every_way(key) != "never final"]
    tell(f"{dict(Counter(each['state'] for each in run.status.values()))}; the bank was asked {run.bank.requests} times")
    tell(f"{len(needless)} are stuck that had an answer: {[(key, scenes.in_every_way(key)) for key in needless[:5]]}")
    books_wrong = differences(run)
    scenes.resolve_all(run)
    found = judge(run, size.payouts)
    for line in found.wrong[:10]:
        tell(f"wrong: {line}")
    return {
        "never_over": Proof(len(found.never_over), 0),
        "ledger_differences": Proof(len(found.differences) + books_wrong + differences(run), 0),
        "otherwise_at_bank": Proof(len(found.otherwise_at_bank), 0),
        "told_wrong": Proof(len(found.told_wrong), 0),
        "dead_letters": Proof(len(found.dead_letters), 0),
        "stuck_without_need": Proof(len(needless), 0),
    }


def scarce(run: PayoutsRun, chance: random.Random, brokers: Path) -> Proofs:
    """200 at once against money for 100."""
    run.start()
    scenes.scarce(run, asked=200, affordable=100)
    found = judge(run, 200)
    return {
        "not_exactly_100": Proof(abs(found.states["SUCCESS"] - 100) + abs(found.states["FAILED"] - 100), 0),
        "wrong": Proof(len(found.wrong) + differences(run), 0),
    }


def stuck(run: PayoutsRun, chance: random.Random, brokers: Path) -> Proofs:
    """30 minutes of polls, then a person's word, once each way; and what the merchant hears."""
    merchant = InThread(sink.serving())
    url = merchant.served.url("/ok/slow")
    run.cli("subscriptions", "create", "--merchant", "slow", "--url", url, "--event", "payout.*").check_returncode()
    run.start()
    scenes.stuck_then_resolved(run)
    run.until(lambda: len(merchant.served.requests) >= 8, "all webhooks have come")
    heard = Counter(kind(each) for each in merchant.served.requests)
    merchant.close()
    expected = Counter(
        (name, event)
        for name, end in {"stuck-paid": "payout.success", "stuck-unpaid": "payout.failed"}.items()
        for event in ("payout.submitted", "payout.stuck", end, "payout.resolved")
    )
    waited_ms = [stuck_after_ms(run, key) * STUCK_SCALE for key in run.status]
    tell(f"stuck after {[round(ms / 60_000, 2) for ms in waited_ms]} scaled minutes of polls")
    found = judge(run, 2)
    return {
        "webhooks_wrong": Proof(((heard - expected) + (expected - heard)).total(), 0),
        "stuck_too_soon": Proof(sum(ms < 30 * 60_000 for ms in waited_ms), 0),
        "wrong": Proof(len(found.wrong) + differences(run), 0),
    }


def kind(request: sink.Received) -> tuple[str, str]:
    event = json.loads(request.body)
    return event["data"]["payout_id"], event["type"]


def stuck_after_ms(run: PayoutsRun, key: str) -> int:
    at_ms = {step["to_state"]: step["at_ms"] for step in reversed(run.status[key]["history"])}
    return int(at_ms["STUCK"] - at_ms["POLLING"])


def scheduled(run: PayoutsRun, chance: random.Random, brokers: Path) -> Proofs:
    """200 payouts for later, in real time."""
    run.start()
    late = [began_ms - due_ms for due_ms, began_ms in scenes.scheduled(run, payouts=200, wait_ms=20_000)]
    tell(f"{len(late)} began {min(late)} to {max(late)} ms after their time")
    return {"early": Proof(sum(ms < 0 for ms in late), 0), "late_ms_max": Proof(max(late), LATE_MS_MAX)}


def batch(run: PayoutsRun, chance: random.Random, brokers: Path) -> Proofs:
    """10,000 items, a hundred of which cannot be paid."""
    run.start()
    began_s, unpayable = time.monotonic(), 100
    scenes.batch(run, BATCH, unpayable)
    done = run.batches["many/B"]
    tell(f"{done['items_succeeded']} succeeded and {done['items_failed']} failed in {time.monotonic() - began_s:.0f} s")
    told = sum(event["type"] == "batch.completed" for event in run.all_of(topics.EVENTS, schemas.EVENT))
    items = sum(each["batch_id"] == "B" for each in run.status.values())
    counts = (done["items_succeeded"], done["items_failed"], done["total_processed"], done["amount_minor_succeeded"])
    right = (BATCH - unpayable, unpayable, BATCH, (BATCH - unpayable) * AMOUNT)
    return {
        "counts_wrong": Proof(sum(one != other for one, other in zip(counts, right, strict=True)), 0),
        "items_missing": Proof(BATCH - items, 0),
        "completed_not_once": Proof(abs(told - 1), 0),
        "not_partially_completed": Proof(int(done["state"] != "PARTIALLY_COMPLETED"), 0),
        "ledger_differences": Proof(differences(run), 0),
    }


def differences(run: PayoutsRun) -> int:
    """What `hookline ledger verify` finds."""
    done = run.cli("ledger", "verify", "--json")
    found = json.loads(done.stdout)
    tell(f"ledger verify: {found['entries']} entries, {found['payouts']} payouts, {found['differences'][:5]}")
    assert done.returncode == bool(found["differences"])
    return len(found["differences"])


def tell(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


PARTS: dict[str, tuple[Callable[[PayoutsRun, random.Random, Path], Proofs], dict[str, Any]]] = {
    "crashes": (
        crashes,
        {"behaves": scenes.in_every_way, "roles": ("payouts,ladder", "channels"), "workers": 2, "partitions": 6, "time_scale": 20.0},
    ),
    "scarce": (scarce, {"partitions": 6}),
    "stuck": (
        stuck, {"behaves": scenes.never_final_where_named, "roles": ("payouts,channels,ladder,deliver",), "time_scale": STUCK_SCALE},
    ),
    "scheduled": (scheduled, {"partitions": 6, "time_scale": 1.0}),
    "batch": (batch, {"partitions": 6}),
}  # fmt: skip


def prove(name: str, servers: str, brokers: Path, folder: Path, chance: random.Random) -> Proofs:
    part, given = PARTS[name]
    folder.mkdir()
    print(name, file=sys.stderr, flush=True)
    with PayoutsRun(servers, f"prove-{uuid4().hex[:8]}.", folder, **given) as run:
        return {f"payouts.{name}.{figure}": proof for figure, proof in part(run, chance, brokers).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"there is no {', '.join(unknown)}: choose from {', '.join(PARTS)}")
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    proofs: Proofs = {}
    with tempfile.TemporaryDirectory(prefix="hookline-payouts-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        brokers = folder / "broker"  # of this proof's own, for it is restarted
        servers = broker.ensure(brokers, port=0).bootstrap_servers
        try:
            for name in names:
                found = prove(name, servers, brokers, folder / name, random.Random(options.seed))
                write(found)
                show(found)
                proofs |= found
        finally:
            broker.stop(brokers)
    sys.exit(0 if all(proof.ok for proof in proofs.values()) else 1)


if __name__ == "__main__":
    main()
