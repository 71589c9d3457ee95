"""Payouts as the log has them: the last word on each, and which one a person means."""

from collections.abc import Callable, Mapping
from typing import Any

import schemas
from streams.commands import reading
from streams.errors import ConfigurationError
from streams.log.records import Record
from topology.topics import PAYOUT_STATUS

Status = Mapping[str, Any]


def load(wanted: Callable[[bytes], bool] = lambda key: True) -> dict[bytes, Status]:
    """The last status of each payout whose key is wanted."""
    found: dict[bytes, Status] = {}

    def take(record: Record) -> None:
        key = record.key or b""
        if not wanted(key):
            return
        if record.value is None:
            found.pop(key, None)
        else:
            found[key] = schemas.decode(record.value, schemas.PAYOUT_STATUS)

    reading.read_whole(PAYOUT_STATUS, take)
    return found


def one(payout_id: str, merchant: str | None) -> Status:
    """The payout of this id, or a refusal that says how to find it. Ids are unique for a merchant only."""
    ending = f" {payout_id}".encode() if merchant is None else f"{merchant} {payout_id}".encode()
    return only(list(load(lambda key: key.endswith(ending) if merchant is None else key == ending).values()), payout_id)


def only(found: list[Status], payout_id: str) -> Status:
    """The one that is meant. Pure."""
    if not found:
        raise ConfigurationError(f"there is no payout {payout_id[:80]!r}: look at the id, or at `hookline payouts list`")
    if len(found) > 1:
        merchants = ", ".join(sorted(each["merchant"] for each in found))
        raise ConfigurationError(f"several merchants have a payout {payout_id[:80]!r}: say whose with --merchant, one of {merchants}")
    return found[0]
