"""A worker process that delivers, as `hookline run --role deliver,ladder` would have it, to merchants on this machine.

Run: python -m bench.delivery_worker --bootstrap B --prefix P --folder F [--roles deliver,ladder] [--authority FILE]
"""

import argparse
from pathlib import Path

from bench.ground import PARTITIONS
from bench.merchants import SECRET_KEYS, Loopback, trusting
from streams import roles
from streams.delivery.agent import delivering
from streams.logs import configure_logs
from streams.settings import Settings
from streams.worker import run_worker

IDLE_CONNECTIONS = 1_000
"""As many as a session would keep that is not told otherwise; 100, the default, would have the loop open one for most deliveries."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--roles", default="deliver")
    parser.add_argument("--authority", type=Path, help="whom merchants' certificates are from")
    options = parser.parse_args()
    configure_logs("info", "json")
    settings = Settings(
        bootstrap_servers=options.bootstrap,
        topic_prefix=options.prefix,
        partitions=PARTITIONS,
        secret_keys=SECRET_KEYS,
        allow_loopback=True,
        idle_connections_max=IDLE_CONNECTIONS,
    )
    kafka = settings.kafka()
    equipment = roles.Equipment(roles.chosen(options.roles), settings, kafka)
    context = trusting(options.authority)
    run_worker(
        equipment.agents,
        settings,
        options.bootstrap,
        options.folder,
        lambda *_: None,
        lambda: delivering(settings, kafka, equipment.subscriptions, resolver=Loopback(), ssl_context=context),
    )


if __name__ == "__main__":
    main()
