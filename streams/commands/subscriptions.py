"""The subscriptions as the log has them, for commands: read whole, and changed without losing what somebody else changes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import schemas
from streams.commands import cluster
from streams.delivery.subscription import encoded
from streams.errors import BrokerUnavailable, ConfigurationError, LogError, MalformedRecord
from streams.log.table import Table
from streams.settings import settings
from topology.topics import SUBSCRIPTIONS

LOAD_TIMEOUT_S = 30.0
TRIES = 5


class Current:
    """The subscriptions by id; no secret is opened, so that looking needs no key."""

    def __init__(self) -> None:
        self.by_id: dict[str, dict[str, Any]] = {}
        self.taken: set[bytes] = set()

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take in one record by the rules that the workers go by: of two with the same revision, the first one counts."""
        name = (key or b"").decode(errors="replace")
        if value is None:
            self.by_id.pop(name, None)
            return
        fields = schemas.decode(value, schemas.SUBSCRIPTION)
        if fields["id"] != name:
            raise MalformedRecord(f"the subscription {fields['id']!r} has the key {name!r}: they must be the same")
        known = self.by_id.get(name)
        if known is None or known["revision"] < fields["revision"]:
            self.by_id[name] = fields
            self.taken.add(value)


async def load_all() -> dict[str, dict[str, Any]]:
    """Every subscription that there is now."""
    current = Current()
    async with _loaded(current):
        return current.by_id


async def change(subscription_id: str, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Write the next revision of what the log has now.

    The log lets two write the same revision, and the second one would be lost; so it is read again, and who came second changes
    what the first one left.
    """
    current = Current()
    async with _loaded(current) as table:
        for _ in range(TRIES):
            fields = change(one(current.by_id, subscription_id))
            value = encoded(fields)
            await write(subscription_id, value)
            await _load(table)
            if value in current.taken:
                return fields
    raise LogError(f"changing subscription {subscription_id}: others change it all the time. Nothing is lost: try again")


def one(found: Mapping[str, dict[str, Any]], subscription_id: str) -> dict[str, Any]:
    """The one of this id, or a refusal that says how to find it."""
    if subscription_id not in found:
        raise ConfigurationError(f"there is no subscription {subscription_id[:80]!r}: `hookline subscriptions list` shows all")
    return found[subscription_id]


async def write(subscription_id: str, value: bytes | None) -> None:
    """Write a subscription's record; no value deletes it."""
    async with cluster.publisher() as publisher:
        await publisher.publish(SUBSCRIPTIONS, subscription_id.encode(), value)


@asynccontextmanager
async def _loaded(current: Current) -> AsyncIterator[Table]:
    table = Table(SUBSCRIPTIONS, settings(), cluster.kafka(), current.apply)
    try:
        await _load(table)
        yield table
    finally:
        await table.close()


async def _load(table: Table) -> None:
    try:
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            await table.load()
    except TimeoutError:
        raise BrokerUnavailable(
            f"reading {cluster.name(SUBSCRIPTIONS)} took more than {LOAD_TIMEOUT_S:g} s: look at the brokers, or at "
            "`hookline broker status`"
        ) from None
