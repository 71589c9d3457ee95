"""The channels agent and what it works with: the wiring, and nothing else."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import aiohttp

from streams.ladder.rules import Ladder
from streams.log.agent import Agent
from streams.payouts.channels.handler import Line, conclude, perform, plan, poison
from streams.payouts.channels.http import HttpChannel
from streams.settings import Settings
from topology import flow, topics


def channels(ladder: Ladder) -> Agent:
    """The agent; `ladder` is where what is put off waits."""
    return Agent(
        flow.CHANNELS.name,
        reads=flow.CHANNELS.reads,
        writes=flow.CHANNELS.writes,
        changelog=topics.CHANGELOG_CHANNELS,
        plan=plan,
        perform=perform,
        conclude=partial(conclude, ladder=ladder),
        poison=poison,
    )


@asynccontextmanager
async def calling(settings: Settings, now_ms: Callable[[], int]) -> AsyncIterator[Mapping[str, Line]]:
    """The channels that the settings name, each with its endpoint, over pooled connections; no cookies, no proxies."""
    connector = aiohttp.TCPConnector(limit=0, limit_per_host=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False) as session:
        yield {
            name: Line(HttpChannel(each.url, each.key_id, each.secret.get_secret_value().encode(), session, now_ms), each.in_flight_max)
            for name, each in settings.channels.items()
        }
