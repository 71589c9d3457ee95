"""The subscriptions of a simulated day: how they begin, how people change them, and every worker's table of them."""

import asyncio
import random
from typing import Any

from streams.delivery.sealing import Keyring
from streams.delivery.subscription import Subscriptions, encoded
from streams.delivery.subscription_changes import FilterWanted, NewSecret, Verb, Wanted, created, sealed, updated, with_state
from streams.log.simulated.cluster import START_MS, Cluster, Reader, brokers_now_ms
from streams.log.simulated.process import Process
from topology import topics

KEYRING = Keyring({"k": bytes(32)})
PLACE = (topics.SUBSCRIPTIONS.name, 0)
FOLLOWS_WITHIN_S = 1.0


class Subscribers:
    """What people ask for, written as the command line writes it."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.names: list[str] = []

    def current(self) -> dict[str, dict[str, Any]]:
        """Those that there are, by name."""
        table = Subscriptions(KEYRING)
        load(table, self.cluster, 0)
        return {name: dict(each.fields) for name, each in table.by_id.items()}

    def subscribe(self, merchant: str, number: int) -> None:
        chance, name = self.chance, f"sub_{merchant}{number}".ljust(26, "0")
        secret = sealed(NewSecret(id="sec_1", algorithm="hmac-sha256", text="whsec_" + "a" * 32), name, KEYRING, bytes(12), START_MS)
        wanted = Wanted(
            url=f"https://{merchant}.example/{name}/1",
            event_types=chance.choice([("*",), ("payin.*",), ("payin.success", "payout.*")]),
            filters=chance.choice([(), (), (FilterWanted("country", ('"PK"', '"AE"')),)]),
            ordered=chance.random() < 0.5,
            behind_dead_letter=chance.choice(["SKIP", "SKIP", "HOLD"]),
            on_ambiguous=chance.choice(["RETRY", "RETRY", "DEAD_LETTER"]),
            rate_per_s=chance.choice([0.05, 1.0, 100.0]),
            burst=chance.choice([1, 20]),
            in_flight_max=chance.choice([1, 3, 10]),
            profile=chance.choice(["standard", "simpaisa", "core", "jitter", "wf"]),
            operational=chance.random() < 0.15,
        )
        self._write(created(name, merchant, wanted, secret, START_MS, allow_loopback=False, disabled=False))
        self.names.append(name)

    def change(self, name: str, wanted: Wanted) -> None:
        fields = self.current().get(name)
        if fields is not None:
            self._write(updated(fields, wanted, brokers_now_ms(), allow_loopback=False))

    def turn(self, name: str, verb: Verb) -> None:
        """Pause, resume, disable or enable, where that can be asked."""
        fields = self.current().get(name)
        allowed = {"pause": "ACTIVE", "resume": "PAUSED", "disable": "ACTIVE", "enable": "DISABLED"}[verb]
        if fields is not None and fields["state"] == allowed:
            self._write(with_state(fields, verb, "somebody asked", brokers_now_ms()))

    def delete(self, name: str) -> None:
        self.cluster.append(PLACE, name.encode(), None, (), brokers_now_ms())

    def _write(self, fields: dict[str, Any]) -> None:
        self.cluster.append(PLACE, fields["id"].encode(), encoded(fields), (), brokers_now_ms())


def load(table: Subscriptions, cluster: Cluster, start: int) -> int:
    """Read on in the table's topic; where to read on next."""
    for entry in cluster.read(PLACE, start, 10**9):
        table.apply(entry.key, entry.value)
    return cluster.stable_end(PLACE)


async def follow(table: Subscriptions, cluster: Cluster, position: int, process: Process, chance: random.Random) -> None:
    """Keep a worker's table current, within a second."""
    written = asyncio.Event()
    cluster.readers["table of subscriptions", process.host.name] = Reader(frozenset({PLACE[0]}), written)
    while True:
        position = load(table, cluster, position)
        await written.wait()
        written.clear()
        await asyncio.sleep(chance.random() * FOLLOWS_WITHIN_S)
        await process.gate.passed()
