"""A supervised worker of the two pipelines, for the fault runs; in its first life it can be told to harm itself at a named point.

Run: python -m tests.faults.worker --bootstrap B --prefix P --folder F --sink URL [--fault point:nth:signal]
"""

import argparse
import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import structlog

from streams.log.kafka import KafkaLog
from streams.log.restore import Restorer
from streams.log.source import Source
from streams.log.transactor import Transactor
from streams.logs import configure_logs
from streams.settings import Settings
from streams.supervisor import Life, Supervisor
from streams.worker import run_worker
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
    turns = itertools.count(1)  # the agents' threads count together, and only one of them has the nth turn

    def harmful(*arguments: Any, **named: Any) -> Any:
        struck = next(turns) == int(nth)
        if struck and not after:
            harm(name)
        result = original(*arguments, **named)
        if struck and after:
            harm(name)
        return result

    setattr(owner, method, harmful)


def harm(name: str) -> None:
    print(f"harmed {name}", flush=True)
    os.kill(os.getpid(), signal.Signals[name])


class PostingWorld(SystemWorld):
    """Posts to a real sink over real sockets, and posts again until it is taken."""

    def __init__(self, sink: str, session: aiohttp.ClientSession) -> None:
        super().__init__()
        self._sink, self._session = sink, session

    async def post(self, value: bytes) -> None:
        while True:
            try:
                async with self._session.post(self._sink, data=value) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)


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
    settings = Settings(
        bootstrap_servers=options.bootstrap,
        topic_prefix=options.prefix,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        in_flight_max=options.in_flight,
    )

    @asynccontextmanager
    async def world() -> AsyncIterator[PostingWorld]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield PostingWorld(options.sink, session)

    def work(life: Life) -> None:
        structlog.get_logger().info("worker.begins", turn=life.turn)
        options.folder.mkdir(parents=True, exist_ok=True)
        (options.folder / "turn").write_text(str(life.turn))
        if options.fault and life.turn == 1:
            arm(options.fault)
        run_worker(list(PIPELINES.values()), settings, options.bootstrap, options.folder, life.ready, world)

    Supervisor(work).run()


if __name__ == "__main__":
    main()
