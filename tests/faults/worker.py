"""A worker process of the two pipelines, for the fault runs; it can be told to harm itself at a named point.

Run: python -m tests.faults.worker --bootstrap B --prefix P --folder F --sink URL [--fault point:nth:signal]
"""

import argparse
import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
import uvloop
from rocksdict import Cache

from streams.log.identity import Identity
from streams.log.kafka import Connection, KafkaLog
from streams.log.restore import Restorer
from streams.log.source import Source
from streams.log.transactor import Transactor
from streams.logs import configure_logs
from streams.settings import Settings
from streams.world import SystemWorld
from tests.pipelines import PIPELINES

POINTS: dict[str, tuple[type, str, bool]] = {  # class, method, harm after it (else before)
    "commit-begins": (Transactor, "write", False),
    "commit-written": (Transactor, "_produce_changes", True),
    "commit-decides": (Transactor, "_commit", False),
    "commit-decided": (Transactor, "_commit", True),
    "commit-stored": (KafkaLog, "_write", True),
    "restore-begins": (Restorer, "_restore", False),
    "restore-stores": (Restorer, "_store", True),
    "revoke-begins": (Source, "_revoked", False),
    "revoke-ends": (Source, "_revoked", True),
    "assign-begins": (Source, "_assigned", False),
    "assign-ends": (Source, "_assigned", True),
}


def arm(fault: str) -> None:
    """Harm this process with a signal the nth time it comes to a point."""
    point, nth, name = fault.split(":")
    owner, method, after = POINTS[point]
    original: Callable[..., Any] = getattr(owner, method)
    left = int(nth)

    def harmful(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            harm(name)
        result = original(*arguments, **named)
        if left == 0 and after:
            harm(name)
        return result

    setattr(owner, method, harmful)


def harm(name: str) -> None:
    print(f"harmed {name}", flush=True)
    os.kill(os.getpid(), signal.Signals[name])


class PostingWorld(SystemWorld):
    """Posts to a real sink over real sockets, and posts again until it is taken."""

    def __init__(self, sink: str, session: Any, worker: str) -> None:
        super().__init__()
        self._sink, self._session, self._headers = sink, session, {"worker": worker}

    async def post(self, value: bytes) -> None:
        while True:
            try:
                async with self._session.post(self._sink, data=value, headers=self._headers) as response:
                    if response.status == 200:
                        return
            except OSError:
                await asyncio.sleep(0.05)


async def run(options: argparse.Namespace) -> None:
    settings = Settings(
        bootstrap_servers=options.bootstrap, topic_prefix=options.prefix, session_timeout_ms=6_000, heartbeat_interval_ms=500, in_flight_max=options.in_flight
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    agents = list(PIPELINES.values())
    with Identity(options.folder) as identity:
        connection = Connection(settings, settings.kafka(), identity.id, options.folder, Cache(32 * 1024 * 1024))
        connecting = [asyncio.get_running_loop().run_in_executor(None, KafkaLog, agent, connection) for agent in agents]
        import aiohttp

        from streams.app import run_agents

        logs = await asyncio.gather(*connecting)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await run_agents(agents, logs, PostingWorld(options.sink, session, identity.id), connection, stop)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--sink", required=True)
    parser.add_argument("--fault")
    parser.add_argument("--in-flight", type=int, default=100)
    options = parser.parse_args()
    configure_logs("info", "json")
    structlog.get_logger().info("worker.begins")
    if options.fault:
        arm(options.fault)
    try:
        uvloop.run(run(options))
    except BaseException as error:
        print(f"ended by {error!r}", flush=True)
        os._exit(3)


if __name__ == "__main__":
    main()
