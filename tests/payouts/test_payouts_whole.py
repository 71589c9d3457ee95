"""Payouts as merchants and operators meet them: from the command line to a signed webhook, and what is shown and verified after it."""

import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

import schemas
from tests import sink
from tests.payouts import scenes
from tests.payouts.harness import AMOUNT, InThread, PayoutsRun
from tests.payouts.verdict import Verdict as Found
from tests.payouts.verdict import judge_bank, judge_events
from topology import topics
from topology.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TIME_SCALE = 600
"""30 minutes of polls in 3 s."""


@pytest.fixture(scope="module")
def merchant() -> Iterator[sink.Sink]:
    """Every merchant's endpoint."""
    serving = InThread(sink.serving())
    yield serving.served
    serving.close()


@pytest.fixture(scope="module")
def run(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PayoutsRun]:
    """One for this file: each test has merchants of its own."""
    with PayoutsRun(
        broker.bootstrap_servers, f"t{uuid4().hex[:10]}.", tmp_path_factory.mktemp("payouts"), scenes.never_final_where_named,
        roles=("payouts,channels,ladder,deliver",), time_scale=TIME_SCALE,
    ) as made:  # fmt: skip
        made.start()
        yield made


def said(run: PayoutsRun, *arguments: str, code: int = 0) -> str:
    done = run.cli(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def subscribed(run: PayoutsRun, merchant: sink.Sink, name: str) -> str:
    """A merchant's subscription to all about its payouts. Its secret."""
    made = said(run, "subscriptions", "create", "--merchant", name, "--url", merchant.url(f"/ok/{name}"), "--event", "payout.*", "--json")
    return str(json.loads(made)["new_secret"]["secret"])


def heard(merchant: sink.Sink, name: str) -> list[dict[str, Any]]:
    return [orjson.loads(each.body) for each in merchant.requests if each.path == f"/ok/{name}"]


def test_a_payout_from_the_command_line_reaches_its_merchant_as_a_signed_webhook_and_can_be_traced(
    run: PayoutsRun, merchant: sink.Sink
) -> None:
    secret = subscribed(run, merchant, "m1")
    said(run, "payouts", "fund", "--merchant", "m1", "--amount", "50", "--currency", "PKR", "--transfer", "t1")
    said(run, "payouts", "beneficiary", "b1", "--merchant", "m1", "--name", "Aisha", "--channel", "mobile_wallet", "--account", "0300")
    pay = ("payouts", "submit", "--merchant", "m1", "--beneficiary", "b1", "--currency", "PKR", "--channel", "mobile_wallet")

    assert said(run, *pay, "--amount", "10.00", "--id", "first", "--key", "k1", "--wait") == "first\n"
    run.until(lambda: len(heard(merchant, "m1")) == 2, "both webhooks have come")
    assert [each["type"] for each in heard(merchant, "m1")] == ["payout.submitted", "payout.success"]
    assert heard(merchant, "m1")[1]["data"] | {"net_amount": "9.90", "fee": "0.10", "status": "SUCCESS"} == heard(merchant, "m1")[1]["data"]
    for request in merchant.requests:
        assert request.headers["webhook-signature"] == signature(secret, request)

    traced = json.loads(said(run, "payouts", "trace", "first", "--json"))
    assert [each["at_ms"] for each in traced] == sorted(each["at_ms"] for each in traced)
    kinds = Counter(each["what"].split(" ")[0] for each in traced)
    assert kinds | Counter(command=1, task=1, reply=1, ledger=3, event=2, webhook=2) == kinds, traced
    assert all(each["topic"] and each["partition"] >= 0 and each["offset"] >= 0 for each in traced)

    assert "k1" in said(run, "payouts", "show", "first") and "posted" in said(run, "payouts", "show", "first")
    again = run.cli(*pay, "--amount", "10.00", "--id", "second", "--key", "k1")
    assert (again.returncode, again.stdout) == (0, "first\n") and "asked for it again" in again.stderr
    assert "idempotency_key_reused" in said(run, *pay, "--amount", "11.00", "--id", "third", "--key", "k1", code=1)
    assert "finer than PKR" in said(run, *pay, "--amount", "1.001", "--id", "fourth", code=1)
    assert "insufficient_funds" in said(run, *pay, "--amount", "41", "--id", "fifth", code=1)
    assert "only what was never submitted is cancelled" in said(run, "payouts", "cancel", "first", "--merchant", "m1", code=1)
    assert said(run, *pay, "--amount", "1", "--id", "later", "--at", "1h") == "later\n"
    assert said(run, "payouts", "cancel", "later", "--merchant", "m1", "--reason", "changed my mind") == "later\n"
    assert "nothing has changed" in said(run, "payouts", "cancel", "later", "--merchant", "m1")
    assert "booked before" in said(run, "payouts", "fund", "--merchant", "m1", "--amount", "50", "--currency", "PKR", "--transfer", "t1")
    listed = json.loads(said(run, "payouts", "list", "--merchant", "m1", "--json"))
    assert {each["payout_id"]: each["state"] for each in listed} == {
        "first": "SUCCESS", "third": "REFUSED", "fourth": "REFUSED", "fifth": "FAILED", "later": "CANCELLED",
    }  # fmt: skip
    balances = json.loads(said(run, "ledger", "balances", "--merchant", "m1", "--json"))
    assert balances == [
        {"merchant": "m1", "currency": "PKR", "available": 4_000, "held": 0, "fees": 10, "settled": 990, "external": -5_000}
    ]
    assert json.loads(said(run, "ledger", "verify", "--json"))["differences"] == []


def signature(secret: str, request: sink.Received) -> str:
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    key = b64decode(secret.removeprefix("whsec_"))
    return "v1," + b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def test_of_200_payouts_at_once_against_money_for_100_exactly_100_succeed(run: PayoutsRun) -> None:
    scenes.scarce(run, asked=200, affordable=100)

    states = Counter((each["state"], each["reason"]) for key, each in run.status.items() if key.startswith("poor/"))
    assert states == {("SUCCESS", None): 100, ("FAILED", "insufficient_funds"): 100}


def test_a_payout_without_a_final_answer_is_stuck_until_a_person_says_how_it_ended(run: PayoutsRun, merchant: sink.Sink) -> None:
    subscribed(run, merchant, "slow")
    scenes.stuck_then_resolved(run)
    run.until(lambda: len(heard(merchant, "slow")) == 8, "all webhooks have come")

    told = [(each["data"]["payout_id"], each["type"]) for each in heard(merchant, "slow")]
    ends = {"stuck-paid": "payout.success", "stuck-unpaid": "payout.failed"}
    assert Counter(told) == Counter(
        (name, event) for name, end in ends.items() for event in ("payout.submitted", "payout.stuck", end, "payout.resolved")
    )
    [balances] = json.loads(said(run, "ledger", "balances", "--merchant", "slow", "--json"))
    assert (balances["settled"], balances["fees"], balances["held"], balances["available"]) == (990, 10, 0, 9 * AMOUNT)


def test_a_scheduled_payout_does_not_begin_before_its_time(run: PayoutsRun) -> None:
    for due_ms, began_ms in scenes.scheduled(run, payouts=5, wait_ms=2_000):
        assert began_ms >= due_ms


def test_a_batch_is_complete_with_its_counts_when_each_item_has_ended(run: PayoutsRun) -> None:
    scenes.batch(run, items=300, unpayable=20)

    done = run.batches["many/B"]
    assert (done["state"], done["items_succeeded"], done["items_failed"], done["items_stuck"]) == ("PARTIALLY_COMPLETED", 280, 20, 0)
    assert (done["total_processed"], done["amount_minor_succeeded"]) == (300, 280 * AMOUNT)
    assert len({key for key, each in run.status.items() if each["batch_id"] == "B"}) == 300
    told = [event for event in run.all_of(topics.EVENTS, schemas.EVENT) if event["type"] == "batch.completed"]
    assert [event["resource"] for event in told] == ["B"]


def test_a_batch_file_is_paid_once_however_often_it_is_sent(run: PayoutsRun, tmp_path: Path) -> None:
    run.open_account("files", 100 * AMOUNT)
    path = tmp_path / "salaries.jsonl"
    path.write_text('{"beneficiary_id": "b1", "amount": "10.00"}\n{"beneficiary_id": "b1", "amount": "20.00"}\n')
    send = ("payouts", "batch", "--merchant", "files", "--id", "S", "--file", str(path), "--currency", "PKR", "--channel", "mobile_wallet")

    assert said(run, *send, "--wait") == "S COMPLETED: 2 succeeded, 0 failed, 0 stuck of 2\n"
    assert said(run, *send) == "S COMPLETED: 2 succeeded, 0 failed, 0 stuck of 2\n"
    [balances] = json.loads(said(run, "ledger", "balances", "--merchant", "files", "--json"))
    assert balances["available"] == 97 * AMOUNT
    path.write_text('{"beneficiary_id": "b1", "amount": "10.00"}\n{"beneficiary_id": "b1", "amount": 0.1}\n')
    assert "line 2 is no payout" in said(run, *send[:5], "T", *send[6:], code=1)


def test_after_all_of_it_the_books_agree_with_the_bank_and_the_command_finds_no_difference(run: PayoutsRun) -> None:
    run.read()
    found = Found()
    judge_bank(run, {entry["id"]: entry for entry in run.all_of(topics.LEDGER_ENTRIES, schemas.LEDGER_TRANSFER)}, found)
    judge_events(run, found)
    assert found.wrong == []
    verified = json.loads(said(run, "ledger", "verify", "--json"))
    assert verified["differences"] == [] and verified["payouts"] == len(run.status)
