"""The deliver agent and what it works with: the wiring, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any

from aiohttp.abc import AbstractResolver

from streams.dead_letters import dead_letter
from streams.delivery.brake import Brake, BrakeRule
from streams.delivery.client import Client
from streams.delivery.gate import Gate
from streams.delivery.handler import Deliverer
from streams.delivery.keys import keyring
from streams.delivery.rules import DisableRule
from streams.delivery.sealing import KEY_BYTES, Keyring
from streams.delivery.state import ShardMemory, expires_ms
from streams.delivery.subscription import Subscriptions
from streams.ladder.rules import Ladder
from streams.log.agent import Agent
from streams.log.table import Table
from streams.settings import Settings
from streams.world import SystemWorld
from topology import flow, topics

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
NO_KEYS = Keyring({"none": bytes(KEY_BYTES)})
"""Opens nothing: every secret names another key."""


def subscriptions_of(settings: Settings, *, opens_secrets: bool = True) -> Subscriptions:
    """An empty table, ready to be read into; who opens no secrets needs no keys."""
    rule = DisableRule(
        settings.disable_failures_max,
        settings.disable_least_min * MINUTE_MS,
        settings.disable_tls_failures_max,
        settings.disable_tls_least_h * HOUR_MS,
    )
    return Subscriptions(keyring(settings) if opens_secrets else NO_KEYS, settings.time_scale, rule)


def brake_of(settings: Settings) -> Brake:
    """What holds deliveries when the fault is ours."""
    return Brake(BrakeRule(settings.brake_merchants_least, settings.brake_fraction, settings.brake_window_s * 1_000))


def deliver(settings: Settings, subscriptions: Subscriptions) -> Agent:
    """The agent, on a table that is read before its first event."""
    clock = SystemWorld()
    ladder = Ladder(settings.time_scale)
    deliverer = Deliverer(subscriptions, brake_of(settings), settings.events_remembered_h * HOUR_MS, ladder=ladder)
    return Agent(
        flow.DELIVER.name,
        reads=flow.DELIVER.reads,
        writes=flow.DELIVER.writes,
        changelog=topics.CHANGELOG_DELIVER,
        plan=deliverer.plan,
        perform=deliverer.perform,
        conclude=deliverer.conclude,
        poison=dead_letter,
        state=lambda state: ShardMemory(state, clock),
        expires_ms=expires_ms,
        tick=deliverer.tick,
    )


class DeliveryWorld(SystemWorld):
    """The real world, with what posts into it."""

    def __init__(self, client: Client, gate: Gate) -> None:
        super().__init__()
        self.client, self.gate = client, gate


@asynccontextmanager
async def following(settings: Settings, kafka: Mapping[str, Any], subscriptions: Subscriptions) -> AsyncIterator[None]:
    """Subscriptions are known, and kept current."""
    table = Table(topics.SUBSCRIPTIONS, settings, kafka, subscriptions.apply)
    try:
        await table.load()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(table.follow())
            yield
            task.cancel()
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        await table.close()


@asynccontextmanager
async def delivering(
    settings: Settings,
    kafka: Mapping[str, Any],
    subscriptions: Subscriptions,
    resolver: AbstractResolver | None = None,
    ssl_context: SSLContext | None = None,
) -> AsyncIterator[DeliveryWorld]:
    """A world in which subscriptions are known and kept current, and connections to merchants are pooled.

    Names and certificates are the system's, unless a benchmark or a test brings its own.
    """
    client = Client(
        allow_loopback=settings.allow_loopback,
        idle_max=settings.idle_connections_max,
        idle_per_endpoint_max=settings.idle_connections_per_endpoint_max,
        idle_s=settings.idle_connection_s,
        resolver=resolver,
        ssl_context=ssl_context,
    )
    async with following(settings, kafka, subscriptions), client:
        yield DeliveryWorld(client, Gate(settings.posts_in_flight_max))
