"""The audit finds what does not add up; the tables and settings around payouts are read as they are meant."""

import re
from typing import Any

import pytest
from pydantic import SecretStr

import schemas
from streams.errors import ConfigurationError, MalformedRecord
from streams.payouts.agent import rules_of
from streams.payouts.audit import Audit
from streams.payouts.beneficiaries import Beneficiaries
from streams.payouts.policy import Fee, Limits
from streams.settings import ChannelSettings, FeeSettings, LimitSettings, Settings
from tests.payouts.shards import BENEFICIARY


def entry(name: str, state: str, debit: str, credit: str, amount: int = 100, pending: str | None = None) -> dict[str, Any]:
    return {
        "id": name, "state": state, "debit_account": f"m/PKR/{debit}", "credit_account": f"m/PKR/{credit}", "amount_minor": amount,
        "pending_id": pending,
    }  # fmt: skip


FUNDING = entry("f", "POSTED", "external", "available")
HELD = entry("r", "PENDING", "available", "held")
PAYOUT = entry("p", "POSTED", "held", "settled", 90, "r")
FEE = entry("e", "POSTED", "held", "fees", 10, "r")
RELEASE = entry("v", "VOIDED", "held", "available", 100, "r")


@pytest.mark.parametrize("entries", [[], [FUNDING], [FUNDING, HELD], [FUNDING, HELD, PAYOUT, FEE], [FUNDING, HELD, RELEASE]])
def test_books_that_add_up_have_no_findings(entries: list[dict[str, Any]]) -> None:
    audit = Audit()
    for each in entries:
        audit.take(each)
    assert audit.findings() == [] and audit.entries == len(entries)


@pytest.mark.parametrize(
    ("entries", "finding"),
    [
        ([FUNDING, FUNDING], "booked twice"),
        ([HELD], "leaves -100 in m/PKR/available"),
        ([FUNDING, RELEASE], "never made"),
        ([FUNDING, HELD, PAYOUT], "90 less|10 less"),
        ([FUNDING, HELD, PAYOUT, FEE, RELEASE], "both posted and voided"),
        ([FUNDING, HELD, {**PAYOUT, "amount_minor": 101}], "more than it held"),
        ([{**FUNDING, "amount_minor": -5}], "moves -5"),
        ([{**FUNDING, "credit_account": "other/PKR/available"}], "add up to"),
        ([FUNDING, {**HELD, "state": "POSTED"}], "are held"),
    ],
)
def test_what_does_not_add_up_is_found(entries: list[dict[str, Any]], finding: str) -> None:
    audit = Audit()
    for each in entries:
        audit.take(each)
    assert any(re.search(finding, each) for each in audit.findings()), audit.findings()


def test_the_table_of_beneficiaries_follows_its_topic() -> None:
    table = Beneficiaries()
    table.apply(b"m1 b1", schemas.encode(schemas.BENEFICIARY, BENEFICIARY))
    known = table.get("m1", "b1")
    assert known is not None and known["account"] == "0300" and table.get("m2", "b1") is None

    table.apply(b"m1 b1", None)
    assert table.get("m1", "b1") is None
    with pytest.raises(MalformedRecord, match="must be the same"):
        table.apply(b"m1 b2", schemas.encode(schemas.BENEFICIARY, BENEFICIARY))


def test_the_settings_make_policies_limits_and_fees() -> None:
    channel = ChannelSettings(url="http://127.0.0.1:1", key_id="us", secret=SecretStr("s"), timeout_s=1.5, tries=2)
    rules = rules_of(
        Settings(
            channels={"mobile_wallet": channel, "bank_transfer": channel.model_copy(update={"available": False})},
            payout_limits={"mobile_wallet/IQD": LimitSettings(least="1", most="2.5")},
            payout_fees={"mobile_wallet/IQD": FeeSettings(fixed="0.005", basis_points=10, most="1")},
            payout_four_eyes=True,
            time_scale=10,
        )
    )

    assert rules.available == {"mobile_wallet"} and rules.four_eyes
    assert rules.limits_of("mobile_wallet", "IQD") == Limits(1_000, 2_500)
    assert rules.fee_of("mobile_wallet", "IQD") == Fee(5, 10, 0, 1_000)
    policy = rules.policy("mobile_wallet")
    assert (policy.timeout_ms, policy.tries, policy.delay_ms_first, policy.poll_every_ms) == (1_500, 2, 200, 1_500)
    assert rules.policy("agent_network").tries == 4


@pytest.mark.parametrize("where", ["mobile_wallet/XXX", "mobile_wallet"])
def test_a_limit_that_cannot_be_read_is_told_by_its_name(where: str) -> None:
    with pytest.raises(ConfigurationError, match=where):
        rules_of(Settings(payout_limits={where: LimitSettings(least="1")}))
