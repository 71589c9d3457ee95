"""The replay agent and what it works with: the wiring, and nothing else."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from streams.dead_letters import dead_letter
from streams.delivery.subscription import Subscriptions
from streams.log.agent import Agent
from streams.replay.handler import Replayer
from streams.replay.reader import KafkaReader
from streams.replay.state import ReplayMemory, expires_ms
from streams.settings import Settings
from topology import flow, topics


def replay(settings: Settings, subscriptions: Subscriptions) -> Agent:
    """The agent, on a table that is kept current."""
    replayer = Replayer(subscriptions, settings.replay_per_s, settings.partitions, settings.record_bytes_max)
    return Agent(
        flow.REPLAY.name,
        reads=flow.REPLAY.reads,
        writes=flow.REPLAY.writes,
        changelog=topics.CHANGELOG_REPLAY,
        plan=replayer.plan,
        perform=replayer.perform,
        conclude=replayer.conclude,
        poison=dead_letter,
        state=ReplayMemory,
        drains=False,
        expires_ms=expires_ms,
    )


@asynccontextmanager
async def reading(settings: Settings, kafka: Mapping[str, Any]) -> AsyncIterator[KafkaReader]:
    """A reader that is closed in the end."""
    reader = KafkaReader(settings, kafka)
    try:
        yield reader
    finally:
        await reader.close()
