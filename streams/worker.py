"""One worker process: takes its identity, connects, and runs its roles' agents until it is told to stop."""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import structlog
import uvloop
from rocksdict import Cache

from streams.app import limits, run_agents
from streams.errors import HooklineError
from streams.log.agent import Agent, World
from streams.log.identity import Identity
from streams.log.kafka import Connection, KafkaLog
from streams.log.machine import Machine
from streams.settings import Settings
from streams.world import SystemWorld

log_line = structlog.get_logger()

GC_THRESHOLDS = (50_000, 20, 20)
"""Units come and go by the thousand and are in no cycle: at Python's 700, looking for some takes a third of a worker's CPU."""

Worlds = Callable[[], AbstractAsyncContextManager[World]]
Page = Callable[[Settings, Sequence[Machine]], AbstractAsyncContextManager[str]]
"""Serves people while the machines run; gives its address."""


@asynccontextmanager
async def system_world() -> AsyncIterator[World]:
    """For agents that need no more than a clock."""
    yield SystemWorld()


@asynccontextmanager
async def no_page(settings: Settings, machines: Sequence[Machine]) -> AsyncIterator[str]:
    """For workers that serve none."""
    yield ""


def run_worker(
    agents: Sequence[Agent],
    settings: Settings,
    servers: str,
    folder: Path,
    ready: Callable[[str], None],
    worlds: Worlds = system_world,
    page: Page = no_page,
) -> None:
    """Run until SIGTERM. An error that says what to do is logged in a line; the process then ends with 1."""
    with Identity(folder) as identity:
        (folder / "pid").write_text(str(os.getpid()))
        structlog.contextvars.bind_contextvars(worker=identity.id)
        connection = Connection(
            settings, settings.kafka(servers), identity.id, folder, Cache(settings.rocksdb_block_cache_mb * 1024 * 1024)
        )
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        uvloop.run(_run_or_end(agents, connection, ready, worlds, page))


def _describe(machines: Sequence[Machine]) -> None:
    """On SIGUSR1: say what each agent holds."""
    for machine in machines:
        log_line.info("agent.state", **machine.describe())


async def _run_or_end(agents: Sequence[Agent], connection: Connection, ready: Callable[[str], None], worlds: Worlds, page: Page) -> None:
    """A failure ends the process where it stands: its threads may wait for a broker that refuses them, and the log is the truth."""
    try:
        await _run(agents, connection, ready, worlds, page)
    except Exception as error:
        expected = isinstance(error, HooklineError)
        log_line.error("worker.failed", reason=str(error), kind=type(error).__name__, exc_info=None if expected else error)
        os._exit(1)


async def _run(agents: Sequence[Agent], connection: Connection, ready: Callable[[str], None], worlds: Worlds, page: Page) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    logs = await asyncio.gather(*(loop.run_in_executor(None, KafkaLog, agent, connection) for agent in agents))
    async with worlds() as world:
        bounds = limits(connection.settings)
        machines = [Machine(agent, world, log, connection.writer(), bounds) for agent, log in zip(agents, logs, strict=True)]
        loop.add_signal_handler(signal.SIGUSR1, _describe, machines)
        async with page(connection.settings, machines) as address:
            await run_agents(machines, logs, stop, lambda: ready(address))
