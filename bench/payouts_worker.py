"""A worker process of payouts: the coordinator as `hookline run --role payouts` would have it, or channels that pay at once.

Run: python -m bench.payouts_worker --bootstrap B --prefix P --folder F --role payouts|channels
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.ground import PARTITIONS
from streams import roles
from streams.log.agent import World
from streams.logs import configure_logs
from streams.payouts.channels.handler import Line
from streams.payouts.channels.port import Answer, Task
from streams.payouts.policy import CHANNELS
from streams.settings import ChannelSettings, Settings
from streams.worker import run_worker
from streams.world import SystemWorld
from topology import flow

IN_FLIGHT_MAX = 100_000


class Instant:
    """A channel that has paid before it is asked."""

    async def submit(self, task: Task, expires_ms: int) -> Answer:
        return Answer("SUCCESS", f"ref-{task.payout_id}")

    async def poll(self, task: Task) -> Answer:
        return Answer("SUCCESS", f"ref-{task.payout_id}")


@asynccontextmanager
async def instant() -> AsyncIterator[World]:
    world = SystemWorld()
    world.channels = {name: Line(Instant(), IN_FLIGHT_MAX) for name in CHANNELS}
    yield world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--role", required=True, choices=[flow.PAYOUTS.name, flow.CHANNELS.name])
    options = parser.parse_args()
    configure_logs("info", "json")
    nowhere = ChannelSettings(url="http://127.0.0.1:1", key_id="bench", secret="bench")
    settings = Settings(
        bootstrap_servers=options.bootstrap, topic_prefix=options.prefix, partitions=PARTITIONS, channels=dict.fromkeys(CHANNELS, nowhere)
    )
    equipment = roles.Equipment([options.role], settings, settings.kafka())
    world = instant if options.role == flow.CHANNELS.name else equipment.world
    run_worker(equipment.agents, settings, options.bootstrap, options.folder, lambda *_: None, world)


if __name__ == "__main__":
    main()
