"""A worker process with one agent, as `hookline run` would have it.

Run: python -m bench.worker --bootstrap B --prefix P --folder F --plan nothing|copy --turn N
"""

import argparse
from pathlib import Path

from bench.agents import PLANS, agent
from streams.logs import configure_logs
from streams.settings import Settings
from streams.worker import run_worker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--plan", required=True, choices=PLANS)
    parser.add_argument("--turn", required=True, type=int)
    options = parser.parse_args()
    configure_logs("info", "json")
    settings = Settings(bootstrap_servers=options.bootstrap, topic_prefix=options.prefix)
    run_worker([agent(options.plan, options.turn)], settings, options.bootstrap, options.folder, lambda *_: None)


if __name__ == "__main__":
    main()
