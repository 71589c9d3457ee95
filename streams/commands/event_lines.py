"""Events as people write them: one from its parts, or one from a line of JSON. Pure."""

import msgspec

from schemas.event import Event
from schemas.instants import from_rfc3339
from schemas.json_events import read_envelope
from streams.delivery.subscription import OPERATIONAL_SOURCE
from streams.errors import MalformedRecord

SOURCE = "command-line"


class Usual(msgspec.Struct, frozen=True):
    """What a line that does not say it otherwise is taken to be."""

    merchant: str | None = None
    type: str | None = None
    source: str | None = None
    resource: str | None = None


def made(usual: Usual, data: str, event_id: str, now_ms: int) -> Event:
    """One event of its parts."""
    return _event(usual, event_id, data.encode(), now_ms)


def read(line: bytes, usual: Usual, event_id: str, now_ms: int) -> Event:
    """One event of a line: an object with merchant, type and data; id, source, resource and time where it knows them.

    `event_id` and `now_ms` are those of a line without. What a line says itself counts.
    """
    given = read_envelope(line)
    here = Usual(
        given.merchant or usual.merchant,
        given.type or usual.type,
        given.source or usual.source,
        given.subject or given.resource or usual.resource,
    )
    try:
        time_ms = from_rfc3339(given.time) if given.time else now_ms
    except ValueError as error:
        raise MalformedRecord(f"the event's time cannot be read: {error}") from None
    return _event(here, given.id or event_id, given.payload(), time_ms)


def _event(usual: Usual, event_id: str, data: bytes, time_ms: int) -> Event:
    source = usual.source or SOURCE
    if source == OPERATIONAL_SOURCE:
        raise MalformedRecord(f"the source {source!r} is Hookline's own, for what it tells of itself: give another")
    return Event(
        id=event_id,
        type=usual.type or "",
        source=source,
        merchant=usual.merchant or "",
        time_ms=time_ms,
        data=data,
        resource=usual.resource,
    )
