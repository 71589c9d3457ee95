"""The payouts agent and what it works with: the wiring, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from streams.dead_letters import dead_letter
from streams.log.agent import Agent
from streams.log.table import Table
from streams.payouts.beneficiaries import Beneficiaries
from streams.payouts.handler import Payouts
from streams.payouts.policy import Rules
from streams.payouts.state import expires_ms
from streams.settings import Settings
from topology import flow, topics


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
