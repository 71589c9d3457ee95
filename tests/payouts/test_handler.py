"""What commands and replies make of payouts, accounts and batches, and what is written about them."""

from typing import Any

import orjson
import pytest

import schemas
from streams.errors import MalformedRecord
from streams.payouts.policy import Fee, Limits, Rules
from streams.payouts.state import KEY_KEPT_MS, expires_ms
from tests.payouts.making import NOW, M
from tests.payouts.shards import BENEFICIARY, PayoutShard, command, funded, submit
from topology import topics

RULES = Rules(limits={"mobile_wallet/PKR": Limits(100, 100_000)}, fees={"mobile_wallet/PKR": Fee(50, 100)})


def test_a_payout_is_reserved_submitted_paid_and_told() -> None:
    shard = PayoutShard(RULES, available=5_000)

    shard.send(submit(metadata={"order": "7"}))
    assert (shard.balance("available"), shard.balance("held")) == (4_000, 1_000)
    task = shard.written[topics.PAYOUT_TASKS][0]
    assert (task["action"], task["number"], task["amount_minor"], task["idempotency_key"]) == ("SUBMIT", 1, 940, "m1/p1")
    assert task["beneficiary"]["account"] == "0300" and task["metadata"] == {"order": "7"} and task["timeout_ms"] == M
    shard.reply("SUCCESS", channel_reference="ref1")

    assert {name: shard.balance(name) for name in ("available", "held", "fees", "settled", "external")} == {
        "available": 4_000, "held": 0, "fees": 60, "settled": 940, "external": -5_000,
    }  # fmt: skip
    status = shard.status()
    assert (status["state"], status["fee_minor"], status["net_minor"], status["channel_reference"]) == ("SUCCESS", 60, 940, "ref1")
    assert [step["to_state"] for step in status["history"]] == ["RESERVED", "SUBMITTING", "POSTING", "SUCCESS"]
    assert all(step["cause"]["topic"] for step in status["history"])
    (submitted, _), (success, told) = shard.events()
    assert (submitted, success) == ("payout.submitted", "payout.success")
    assert (told["amount"], told["fee"], told["net_amount"], told["channel_reference"]) == ("10.00", "0.60", "9.40", "ref1")


def test_a_failed_payout_gives_the_money_back_and_is_told_with_its_reason() -> None:
    shard = PayoutShard(RULES, available=5_000)
    shard.send(submit())

    shard.reply("REFUSED", code="no_such_wallet", detail="nobody there")

    assert (shard.balance("available"), shard.balance("held")) == (5_000, 0)
    assert (shard.status()["state"], shard.status()["reason"]) == ("FAILED", "no_such_wallet")
    assert [name for name, _ in shard.events()] == ["payout.submitted", "payout.failed"]


def test_money_for_one_payout_is_not_spent_twice() -> None:
    shard = PayoutShard(available=10_500)

    for number in range(20):
        shard.send(submit(number))

    states = [shard.status(f"p{number}")["state"] for number in range(20)]
    assert states == ["SUBMITTING"] * 10 + ["FAILED"] * 10
    assert shard.status("p19")["reason"] == "insufficient_funds"
    assert (shard.balance("available"), shard.balance("held")) == (500, 10_000)


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"amount": "1.001"}, "bad_amount"), ({"amount": "-1"}, "bad_amount"), ({"amount": None}, "bad_amount"),
        ({"amount_minor": 5}, "bad_amount"), ({"currency": "XXX"}, "bad_amount"), ({"amount": "0.99"}, "outside_limits"),
        ({"amount": "1000.01"}, "outside_limits"), ({"channel": "pigeon"}, "unknown_channel"),
        ({"channel": "bank_transfer"}, "wrong_channel"),
        ({"channel": "agent_network"}, "channel_unavailable"), ({"beneficiary_id": "b9"}, "unknown_beneficiary"),
        ({"beneficiary_id": "b2"}, "inactive_beneficiary"), ({"beneficiary_id": "b3"}, "wrong_currency"),
        ({"idempotency_key": ""}, "bad_idempotency_key"),
        ({"batch_id": "none", "batch_index": 0}, "unknown_batch"), ({"scheduled_ms": NOW * 1_000}, "bad_schedule"),
        ({"metadata": {"a": "x" * 9_000}}, "metadata_too_large"), ({"payout_id": "p 1"}, "bad_id"),
    ],
)  # fmt: skip
def test_a_bad_command_is_answered_with_its_reason_and_has_no_side_effect(others: dict[str, Any], reason: str) -> None:
    rules = Rules(limits=RULES.limits, available=frozenset({"mobile_wallet", "bank_transfer"}))
    shard = PayoutShard(rules, available=5_000)
    for more in ({"id": "b2", "state": "INACTIVE"}, {"id": "b3", "currency": "USD"}):
        fields = {**BENEFICIARY, **more}
        shard.beneficiaries.apply(f"m1 {fields['id']}".encode(), schemas.encode(schemas.BENEFICIARY, fields))

    outcome = shard.send(submit(**others))

    answered = shard.written[topics.PAYOUT_STATUS][-1]
    assert (answered["state"], answered["reason"]) == ("REFUSED", reason)
    assert [write.topic for write in outcome.writes] == [topics.PAYOUT_STATUS] and not outcome.changes


def test_a_refused_command_spends_no_idempotency_key() -> None:
    shard = PayoutShard(available=5_000)
    shard.send(submit(amount="0"))

    shard.send(submit())

    assert shard.status()["state"] == "SUBMITTING"


def test_a_repeated_key_returns_the_first_payout_however_the_amount_is_written_and_pays_once() -> None:
    shard = PayoutShard(available=5_000)
    shard.send(submit())

    shard.send(submit(amount=None, amount_minor=1_000))
    shard.send(submit("other", idempotency_key="k1"))

    assert len(shard.written[topics.PAYOUT_TASKS]) == 1
    assert [step["message"] for step in shard.status()["history"]][-2:] == ["submit repeated", "submit repeated"]
    assert shard.status()["state"] == "SUBMITTING"


def test_a_repeated_key_with_another_body_is_refused_and_changes_nothing_of_the_first() -> None:
    shard = PayoutShard(available=5_000)
    shard.send(submit())

    shard.send(submit("other", idempotency_key="k1", amount="11"))
    shard.send(submit(amount="11"))

    assert (shard.status("pother")["state"], shard.status("pother")["reason"]) == ("REFUSED", "idempotency_key_reused")
    assert shard.status()["state"] == "SUBMITTING" and shard.status()["history"][-1]["message"] == "submit refused"
    assert shard.balance("held") == 1_000


def test_an_id_that_is_taken_is_refused_without_touching_who_has_it() -> None:
    shard = PayoutShard(available=5_000)
    shard.send(submit())

    shard.send(submit(idempotency_key="k2"))

    assert shard.status()["state"] == "SUBMITTING" and "payout_id_taken" in shard.status()["history"][-1]["detail"]


def test_keys_are_kept_90_days_and_payouts_90_days_after_their_end() -> None:
    shard = PayoutShard(available=5_000)
    shard.send(submit(1))
    shard.send(submit(2))
    shard.reply("SUCCESS")

    when = {key: expires_ms(key, value) for key, value in shard.store.values.items()}

    assert when[b"k/m1\0k1"] == when[b"p/m1\0p1"] == NOW + KEY_KEPT_MS
    assert when[b"p/m1\0p2"] is None and when[b"a/m1\0PKR"] is None and when[b"f/m1\0opening"] is None


def test_funding_comes_in_once() -> None:
    shard = PayoutShard()
    for _ in range(2):
        shard.send(funded(700))
    shard.send(funded(800))

    assert shard.balance("available") == 700
    refused = shard.written[topics.PAYOUT_STATUS][-1]
    assert (refused["state"], refused["reason"]) == ("REFUSED", "transfer_id_taken")


def test_a_beneficiary_can_be_paid_by_the_command_after_the_one_that_registers_it() -> None:
    shard = PayoutShard(available=5_000)

    shard.send(command("REGISTER_BENEFICIARY", {**BENEFICIARY, "id": "b7", "account": "0333"}))
    shard.send(submit(beneficiary_id="b7"))

    assert shard.written[topics.BENEFICIARIES][0]["account"] == "0333"
    assert shard.written[topics.PAYOUT_TASKS][0]["beneficiary"]["account"] == "0333"
    shard.send(command("REGISTER_BENEFICIARY", {**BENEFICIARY, "id": "b7", "state": "INACTIVE"}))
    shard.send(submit(2, beneficiary_id="b7"))
    assert shard.status("p2")["reason"] == "inactive_beneficiary"


def test_a_scheduled_payout_holds_its_money_when_its_time_comes_and_its_beneficiary_is_looked_at_again() -> None:
    shard = PayoutShard(available=5_000)
    for number in (1, 2):
        shard.send(submit(number, scheduled_ms=NOW + 90 * M, beneficiary_id="b1"))
    assert (shard.status()["state"], shard.balance("held"), shard.events()) == ("SCHEDULED", 0, [])

    shard.timer("start")
    assert (shard.now_ms, shard.status()["state"], shard.balance("held")) == (NOW + 90 * M, "SUBMITTING", 1_000)
    shard.beneficiaries.apply(b"m1 b1", None)
    shard.timer("start")
    assert (shard.status("p2")["state"], shard.status("p2")["reason"]) == ("FAILED", "unknown_beneficiary")


def test_a_scheduled_payout_is_cancelled_and_its_timer_finds_nothing_to_do() -> None:
    shard = PayoutShard(available=5_000)
    shard.send(submit(scheduled_ms=NOW + 90 * M))

    shard.send(command("CANCEL", {"payout_id": "p1", "reason": "changed my mind"}))
    shard.timer("start")

    assert shard.status()["state"] == "CANCELLED" and shard.balance("available") == 5_000
    assert [name for name, _ in shard.events()] == ["payout.cancelled"]


@pytest.mark.parametrize(("word", "available", "told"), [("SUCCESS", 4_000, "payout.success"), ("FAILED", 5_000, "payout.failed")])
def test_a_stuck_payout_is_resolved_by_a_person(word: str, available: int, told: str) -> None:
    shard = PayoutShard(available=5_000)
    shard.send(submit())
    shard.reply("ACCEPTED")
    shard.timer("deadline")
    shard.timer("deadline")
    assert (shard.status()["state"], shard.balance("held")) == ("STUCK", 1_000)
    assert shard.written[topics.OPERATIONAL_EVENTS][0]["type"] == "payout.stuck"

    shard.send(command("RESOLVE", {"payout_id": "p1", "status": word, "resolved_by": "ann", "notes": "phoned"}))

    assert (shard.status()["state"], shard.balance("available"), shard.balance("held")) == (word, available, 0)
    assert shard.status()["resolution"]["resolved_by"] == "ann"
    assert [name for name, _ in shard.events()] == ["payout.submitted", "payout.stuck", told, "payout.resolved"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (command("CANCEL", {"payout_id": "p9"}), "unknown_payout"),
        (command("RESOLVE", {"payout_id": "p9", "status": "FAILED", "resolved_by": "ann"}), "unknown_payout"),
        (command("RESOLVE", {"payout_id": "p9", "status": "FAILED", "resolved_by": ""}), "bad_resolution"),
        (command("FUND_ACCOUNT", {"transfer_id": "t", "amount_minor": 0, "currency": "PKR"}), "bad_amount"),
        (command("FUND_ACCOUNT", {"transfer_id": "t t", "amount_minor": 1, "currency": "PKR"}), "bad_id"),
        (command("REGISTER_BENEFICIARY", {**BENEFICIARY, "merchant": "m2"}), "wrong_merchant"),
        (command("REGISTER_BENEFICIARY", {**BENEFICIARY, "name": "x" * 17_000}), "beneficiary_too_large"),
        (command("REGISTER_BENEFICIARY", {**BENEFICIARY, "state": "UNKNOWN"}), "bad_beneficiary"),
        (command("SUBMIT", None), "unknown_command"),
    ],
)
def test_what_is_about_no_payout_is_answered_under_the_command_s_own_id(asked: dict[str, Any], reason: str) -> None:
    shard = PayoutShard()
    shard.send(asked)

    assert shard.status(asked["id"])["reason"] == reason


def test_a_command_in_json_is_the_same_command_and_a_fraction_in_it_is_refused() -> None:
    shard = PayoutShard(available=5_000)
    shard.plan(topics.PAYOUT_COMMANDS, b"m1", orjson.dumps(submit()))
    assert shard.status()["state"] == "SUBMITTING"

    with pytest.raises(MalformedRecord, match="fraction"):
        shard.plan(topics.PAYOUT_COMMANDS, b"m1", orjson.dumps(submit(2, amount=None, amount_minor=1.5)))
    with pytest.raises(MalformedRecord, match="bogus"):
        shard.plan(topics.PAYOUT_COMMANDS, b"m1", orjson.dumps(submit(2, bogus=1)))
    with pytest.raises(MalformedRecord, match="not its record's key"):
        shard.plan(topics.PAYOUT_COMMANDS, b"m2", orjson.dumps(submit(2)))


def test_whatever_people_write_a_status_stays_small_enough_to_be_written() -> None:
    shard = PayoutShard(available=5_000)
    shard.send(submit(metadata={"a": "x" * 7_000}))
    shard.reply("ACCEPTED", detail="y" * 100_000)
    shard.timer("deadline")
    for number in range(300):
        body = {"payout_id": "p1", "status": "FAILED", "resolved_by": "z" * 900, "notes": "n" * 90_000, "confirms": f"r{number}"}
        outcome = shard.send(command("RESOLVE", body))

    assert all(write.bytes_at_most < 300_000 for write in outcome.writes)
    assert max(len(value) for value in shard.store.values.values()) < 300_000
    assert shard.status()["state"] == "STUCK"


# Batches


def header(items: int, **others: Any) -> dict[str, Any]:
    return command("SUBMIT_BATCH", {"batch_id": "B", "items_total": items, "currency": "PKR", **others})


def test_a_batch_counts_each_place_once_and_is_partially_completed() -> None:
    shard = PayoutShard(available=5_000)
    shard.send(header(3))
    shard.send(submit(0, batch_id="B", batch_index=0))
    shard.send(submit(0, batch_id="B", batch_index=0))
    shard.send(submit(1, batch_id="B", batch_index=1, amount="0"))
    shard.send(submit(1, batch_id="B", batch_index=1, amount="0"))
    shard.send(submit(2, batch_id="B", batch_index=2))
    shard.send(submit(3, batch_id="B", batch_index=3))
    shard.send(submit(4, batch_id="B", batch_index=2))
    shard.reply("SUCCESS", payout_id="p0")
    assert "batch.completed" not in [name for name, _ in shard.events()]
    shard.reply("FAILED", payout_id="p2")
    shard.send(header(3))

    batch = shard.written[topics.PAYOUT_BATCH_STATUS][-1]
    assert (batch["state"], batch["items_succeeded"], batch["items_failed"], batch["total_processed"]) == ("PARTIALLY_COMPLETED", 1, 2, 3)
    assert batch["amount_minor_succeeded"] == 1_000
    assert [name for name, _ in shard.events()].count("batch.completed") == 1
    assert shard.status("p3")["reason"] == "bad_batch_index" and shard.status("p4")["reason"] == "item_taken"
    places = [(each["batch_id"], each["batch_index"]) for each in map(shard.status, ("p0", "p1", "p2", "p3", "p4"))]
    assert places == [("B", 0), ("B", 1), ("B", 2), (None, None), (None, None)]


@pytest.mark.parametrize(("replies", "state"), [(["SUCCESS", "SUCCESS"], "COMPLETED"), (["FAILED", "FAILED"], "FAILED")])
def test_a_batch_of_which_all_or_none_succeed(replies: list[str], state: str) -> None:
    shard = PayoutShard(available=5_000)
    shard.send(header(2))
    for number, outcome in enumerate(replies):
        shard.send(submit(number, batch_id="B", batch_index=number))
        shard.reply(outcome, payout_id=f"p{number}")

    assert shard.written[topics.PAYOUT_BATCH_STATUS][-1]["state"] == state


def test_a_stuck_item_keeps_its_batch_open_until_a_person_resolves_it() -> None:
    shard = PayoutShard(available=5_000)
    shard.send(header(1))
    shard.send(submit(1, batch_id="B", batch_index=0))
    shard.reply("ACCEPTED")
    shard.timer("deadline")
    shard.timer("deadline")
    batch = shard.written[topics.PAYOUT_BATCH_STATUS][-1]
    assert (batch["state"], batch["items_stuck"], batch["total_processed"]) == ("OPEN", 1, 0)

    shard.send(command("RESOLVE", {"payout_id": "p1", "status": "SUCCESS", "resolved_by": "ann"}))

    batch = shard.written[topics.PAYOUT_BATCH_STATUS][-1]
    assert (batch["state"], batch["items_stuck"], batch["total_processed"]) == ("COMPLETED", 0, 1)


def test_a_batch_of_ten_thousand_completes_and_no_value_of_its_state_grows_with_it() -> None:
    shard = PayoutShard(available=10_000 * 1_000)
    shard.audit.findings = list  # type: ignore[method-assign]  # looked at once, at the end
    shard.send(header(10_000, amount_minor_total=10_000 * 1_000))
    for number in range(10_000):
        shard.send(submit(number, batch_id="B", batch_index=number))
        shard.reply("SUCCESS", payout_id=f"p{number}")
    del shard.audit.findings

    batch = shard.written[topics.PAYOUT_BATCH_STATUS][-1]
    assert (batch["state"], batch["total_processed"], batch["reason"]) == ("COMPLETED", 10_000, None)
    assert max(len(value) for key, value in shard.store.values.items() if key[:1] in b"bi") < 200
    assert shard.audit.findings() == [] and shard.balance("settled") == 10_000 * 1_000
