"""A request of a person, and how far one partition has come with it: what they are, and the records that tell of them."""

from collections.abc import Mapping
from typing import Any

import msgspec

import schemas
from streams.errors import MalformedRecord
from streams.log.records import Write
from topology import topics


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """As replay_request.avsc has it, without the progress."""

    id: str
    action: str
    from_log: str
    dead_letter_id: str | None
    event_id: str | None
    source: str | None
    subscription_id: str | None
    merchant: str | None
    event_type: str | None
    reason: str | None
    from_ms: int | None
    to_ms: int | None
    include_cancelled: bool
    missing_only: bool
    rate_per_s: float | None
    dry_run: bool
    requested_by: str
    requested_ms: int
    note: str | None


class Progress(msgspec.Struct, frozen=True):
    """Where one partition's part stands. What was begun in an earlier turn goes nowhere."""

    standing: str = "RUNNING"
    turn: int = 0
    cursor: int = 0
    end: int = 0
    looked_at: int = 0
    matched: int = 0
    sent: int = 0
    skipped: int = 0
    reason: str | None = None


def decode(value: bytes | None) -> tuple[Request, Progress | None]:
    """Read a record of the requests' topic."""
    fields = schemas.decode(value or b"", schemas.REPLAY_REQUEST)
    told = fields.pop("progress")
    if fields["action"] == "PROGRESS" and told is None:
        raise MalformedRecord(f"the progress of replay {fields['id'][:80]!r} tells none")
    return Request(**fields), Progress(**told) if told is not None else None


def encode(request: Request) -> bytes:
    """Its record's value."""
    return schemas.encode(schemas.REPLAY_REQUEST, _fields(request))


def tell(request: Request, progress: Progress) -> Write:
    """Tell how far it has come; one that runs is also what makes the agent go on."""
    fields: Mapping[str, Any] = {**_fields(request), "action": "PROGRESS", "progress": msgspec.to_builtins(progress)}
    return Write(topics.REPLAY_REQUESTS, request.id.encode(), schemas.encode(schemas.REPLAY_REQUEST, fields))


def _fields(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__struct_fields__}
