"""The payouts agent and what it works with: the wiring, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from streams.dead_letters import dead_letter
from streams.errors import ConfigurationError
from streams.log.agent import Agent
from streams.log.table import Table
from streams.payouts.beneficiaries import Beneficiaries
from streams.payouts.handler import Payouts
from streams.payouts.money import BadAmount, from_decimal
from streams.payouts.policy import OTHERWISE, POLICIES, ChannelPolicy, Fee, Limits, Rules
from streams.payouts.state import expires_ms
from streams.settings import ChannelSettings, FeeSettings, LimitSettings, Settings
from topology import flow, topics


def rules_of(settings: Settings) -> Rules:
    """Policies, limits and fees as the settings have them."""
    return Rules(
        policies={**POLICIES, **{name: _policy(name, each) for name, each in settings.channels.items()}},
        limits={where: _limits(where, each) for where, each in settings.payout_limits.items()},
        fees={where: _fee(where, each) for where, each in settings.payout_fees.items()},
        available=frozenset(name for name, each in settings.channels.items() if each.available),
        four_eyes=settings.payout_four_eyes,
        time_scale=settings.time_scale,
    )


def _policy(name: str, given: ChannelSettings) -> ChannelPolicy:
    usual = POLICIES.get(name, OTHERWISE)
    wanted = {"timeout_ms": given.timeout_s, "delay_ms_first": given.delay_first_s, "delay_ms_most": given.delay_most_s}
    changes = {field: int(seconds * 1_000) for field, seconds in wanted.items() if seconds is not None}
    return msgspec.structs.replace(usual, tries=given.tries or usual.tries, **changes)


def _limits(where: str, given: LimitSettings) -> Limits:
    return Limits(_minor(where, given.least) or 1, _minor(where, given.most))


def _fee(where: str, given: FeeSettings) -> Fee:
    return Fee(_minor(where, given.fixed) or 0, given.basis_points, _minor(where, given.least) or 0, _minor(where, given.most))


def _minor(where: str, decimal: str | None) -> int | None:
    """A figure of `mobile_wallet/PKR` in minor units."""
    try:
        return None if decimal is None else from_decimal(decimal, where.rpartition("/")[2])
    except BadAmount as error:
        raise ConfigurationError(f"reading HOOKLINE_PAYOUT_LIMITS or _FEES of {where}: {error}") from None


def payouts(beneficiaries: Beneficiaries, rules: Rules) -> Agent:
    """The agent, on a table that is read before its first command."""
    return Agent(
        flow.PAYOUTS.name,
        reads=flow.PAYOUTS.reads,
        writes=flow.PAYOUTS.writes,
        changelog=topics.CHANGELOG_PAYOUTS,
        plan=Payouts(beneficiaries, rules).plan,
        poison=dead_letter,
        expires_ms=expires_ms,
    )


@asynccontextmanager
async def knowing(settings: Settings, kafka: Mapping[str, Any], beneficiaries: Beneficiaries) -> AsyncIterator[None]:
    """While this holds, beneficiaries are known and kept current."""
    table = Table(topics.BENEFICIARIES, settings, kafka, beneficiaries.apply)
    try:
        await table.load()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(table.follow())
            yield
            following.cancel()
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        await table.close()
