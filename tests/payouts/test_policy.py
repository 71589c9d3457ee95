"""How patient each channel's policy is, what it takes and what it costs, in tables."""

import pytest

from streams.errors import ConfigurationError
from streams.payouts.policy import NO_LIMITS, OTHERWISE, POLICIES, ChannelPolicy, Fee, Limits, Rules

S, M = 1_000, 60_000


@pytest.mark.parametrize(
    ("channel", "timeout_ms", "tries", "delays_ms"),
    [
        ("mobile_wallet", M, 5, [2 * S, 4 * S, 8 * S, 16 * S, 30 * S, 30 * S]),
        ("bank_transfer", 5 * M, 3, [5 * S, 10 * S, 20 * S, 40 * S, 80 * S, 2 * M, 2 * M]),
        ("agent_network", 3 * M, 4, [3 * S, 6 * S, 12 * S, 24 * S, 48 * S, M, M]),
        ("carrier_pigeon", 2 * M, 3, [5 * S, 10 * S]),
    ],
)
def test_each_channel_has_its_times_and_tries(channel: str, timeout_ms: int, tries: int, delays_ms: list[int]) -> None:
    policy = Rules().policy(channel)

    assert (policy.timeout_ms, policy.tries, policy.poll_every_ms, policy.poll_for_ms) == (timeout_ms, tries, 15 * S, 30 * M)
    assert [policy.delay_ms(failed) for failed in range(1, len(delays_ms) + 1)] == delays_ms


def test_a_scale_divides_what_is_waited_for_and_leaves_what_a_call_may_take() -> None:
    scaled = Rules(time_scale=100).policy("mobile_wallet")

    assert (scaled.delay_ms(1), scaled.poll_every_ms, scaled.poll_for_ms) == (20, 150, 18 * S)
    assert (scaled.timeout_ms, scaled.submit_within_ms) == (M, POLICIES["mobile_wallet"].submit_within_ms)


@pytest.mark.parametrize("policy", [*POLICIES.values(), OTHERWISE])
def test_all_tries_are_over_before_a_payout_is_overdue(policy: ChannelPolicy) -> None:
    assert policy.overdue_ms > policy.submission_ms_most + policy.poll_for_ms


@pytest.mark.parametrize(
    ("fee", "amount", "expected"),
    [
        (Fee(), 10_000, 0), (Fee(500), 10_000, 500), (Fee(basis_points=150), 10_000, 150), (Fee(basis_points=1), 1, 1),
        (Fee(100, 100, 150, 300), 1_000, 150), (Fee(100, 100, 150, 300), 10_000, 200), (Fee(100, 100, 150, 300), 100_000, 300),
    ],
)  # fmt: skip
def test_a_fee_is_fixed_and_a_part_rounded_up_within_bounds(fee: Fee, amount: int, expected: int) -> None:
    assert fee.of(amount) == expected


def test_limits_and_fees_are_looked_up_by_channel_and_currency() -> None:
    rules = Rules(limits={"mobile_wallet/PKR": Limits(100, 1_000)}, fees={"mobile_wallet/PKR": Fee(5)})

    assert rules.limits_of("mobile_wallet", "PKR") == Limits(100, 1_000) and rules.fee_of("mobile_wallet", "PKR") == Fee(5)
    assert rules.limits_of("mobile_wallet", "BDT") is NO_LIMITS and rules.fee_of("bank_transfer", "PKR") == Fee()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChannelPolicy(tries=0), lambda: ChannelPolicy(timeout_ms=0), lambda: ChannelPolicy(delay_ms_first=5, delay_ms_most=4),
        lambda: ChannelPolicy(ledger_delays_ms=(1,)), lambda: Limits(0), lambda: Limits(5, 4),
        lambda: Fee(-1), lambda: Fee(basis_points=10_001),
        lambda: Fee(least_minor=5, most_minor=4),
    ],
)  # fmt: skip
def test_figures_that_make_no_sense_are_refused_where_they_are_declared(make: object) -> None:
    with pytest.raises(ConfigurationError):
        make()  # type: ignore[operator]
