"""A worker with the ladder alone, as `hookline run --role ladder` would have it. It says when it is at work.

Run: python -m tests.ladder.worker --bootstrap B --prefix P --folder F [--scale S]
"""

import argparse
from pathlib import Path

from streams.logs import configure_logs
from streams.roles import Equipment
from streams.settings import Settings
from streams.worker import run_worker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    configure_logs("info", "json")
    settings = Settings(bootstrap_servers=options.bootstrap, topic_prefix=options.prefix, time_scale=options.scale)
    agents = Equipment(["ladder"], settings, settings.kafka()).agents
    run_worker(agents, settings, options.bootstrap, options.folder, lambda _: print("ready", flush=True))


if __name__ == "__main__":
    main()
