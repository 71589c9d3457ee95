"""`hookline status`: where each delivery of an event stands, why it waits, and every attempt."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

import schemas
from schemas.event import Event
from schemas.instants import to_rfc3339
from streams.commands import cluster, reading, subscriptions
from streams.commands.attempts import attempts_grid
from streams.commands.deliveries import Handled, Place, Untold, event_named, untold, why_it_waits
from streams.commands.handled import handled_by
from streams.commands.terminal import AsJson, console, only_warnings_are_logged, print_json
from streams.commands.times import instant_ms
from streams.errors import ConfigurationError, MalformedRecord
from streams.log.records import Record
from streams.world import SystemWorld
from topology import flow
from topology.topics import DELIVERY_STATUS, EVENTS

Status = Mapping[str, Any]
ROLES = {"HTTP": flow.DELIVER, "KAFKA": flow.MERCHANT_TOPICS}
"""Which role gives a subscription its events, by its destination."""


def status(
    event_id: Annotated[str, typer.Argument(metavar="EVENT-ID", help="The event, as its producer named it.")],
    subscription: Annotated[str | None, typer.Option(help="Only its delivery to this subscription.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Look for an event that has no status yet only from here on: 1h (ago), or 2024-01-31T09:30:00Z. It is quicker."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell where each delivery of an event stands: its state, why it waits, when it is tried next, and every attempt."""
    only_warnings_are_logged()
    since_ms = instant_ms(since, SystemWorld().now_ms()) if since is not None else None
    handled = {role.name: handled_by(role, EVENTS) for role in ROLES.values()}  # first, so that what is done by then has its status below
    told = _told(event_id)
    found = _events(event_id, told, since_ms)
    if not told and not found:
        stretch = f" since {since}" if since else ""
        raise ConfigurationError(
            f"there is no event {event_id[:80]!r} in {cluster.name(EVENTS)}{stretch}, and no delivery of one: look at the id, and whether "
            "its producer has written it"
        )
    pending = _pending(found, told, handled)
    if subscription is not None:
        told = [each for each in told if each["subscription_id"] == subscription]
        pending = [each for each in pending if each.subscription_id == subscription]
    if as_json:
        print_json([*told, *(msgspec.to_builtins(each) for each in pending)])
        return
    for each in told:
        _tell(each, SystemWorld().now_ms())
    for waiting in pending:
        console.print(Text(f"{waiting.event_id} to {waiting.subscription_id}: {waiting.state}\n  {waiting.reason}"), soft_wrap=True)
    if not told and not pending:
        whom = f"Subscription {subscription} does not want" if subscription else "No subscription wants"
        console.print(Text(f"{whom} event {event_id}: nothing was or will be delivered"), soft_wrap=True)


# What the log says


def _told(event_id: str) -> list[Status]:
    """The last status of each delivery of the event."""
    found: dict[bytes, Status] = {}
    wanted = event_id.encode()

    def take(record: Record) -> None:
        if event_named(record.key) != wanted:
            return
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = schemas.decode(record.value, schemas.DELIVERY_STATUS)

    reading.read_whole(DELIVERY_STATUS, take)
    return sorted(found.values(), key=lambda each: (each["source"], each["subscription_id"]))


def _events(event_id: str, told: list[Status], since_ms: int | None) -> dict[Place, Event]:
    """The event by its place in the log; of each source with this id the first one. A status names it, so nothing is searched."""
    if told:
        places = {(each["origin"]["partition"], each["origin"]["offset"]) for each in told if each["origin"]["topic"] == EVENTS.name}
        records = [reading.read_one(EVENTS, *place) for place in sorted(places)]
        events = [(record, _event(record, event_id)) for record in records if record is not None]
        return {(record.partition, record.offset): event for record, event in events if event is not None}
    found: dict[Place, Event] = {}
    sources: set[str] = set()
    wanted = event_id.encode()

    def take(record: Record) -> None:
        if not _may_be(record, wanted):
            return
        event = _event(record, event_id)
        if event is not None and event.source not in sources:
            sources.add(event.source)
            found[record.partition, record.offset] = event

    reading.read_whole(EVENTS, take, since_ms)
    return found


def _may_be(record: Record, wanted: bytes) -> bool:
    """Whether a record can hold the event at all: most can be told without decoding them. JSON may write a letter as an escape."""
    value = record.value or b""
    if wanted in value or (value[:1] != b"\0" and b"\\" in value):
        return True
    return any(header is not None and wanted in header for _, header in record.headers)


def _event(record: Record, event_id: str) -> Event | None:
    try:
        event = schemas.decode_event(record.value, record.headers, record.key, record.timestamp_ms)
    except MalformedRecord:
        return None  # it is in the DLQ, and no delivery of any event
    return event if event.id == event_id else None


def _pending(found: Mapping[Place, Event], told: list[Status], handled: Mapping[str, Mapping[int, Handled]]) -> list[Untold]:
    if not found:
        return []
    all_subscriptions = asyncio.run(subscriptions.load_all()).values()
    pending = []
    for (partition, offset), event in found.items():
        known = [each["subscription_id"] for each in told if each["source"] == event.source]
        for destination, role in ROLES.items():
            of_role = [each for each in all_subscriptions if each["destination"] == destination]
            pending += untold(event, offset, known, of_role, handled[role.name][partition])
    return sorted(pending, key=lambda each: (each.source, each.subscription_id))


# What is said


def _tell(told: Status, now_ms: int) -> None:
    replayed = f", replay {told['generation']}" if told["generation"] else ""
    lines = [f"{told['event_id']} to {told['subscription_id']}: {told['state']}{replayed}"]
    lines.append(f"  {told['event_type']} of merchant {told['merchant']}, from {told['source']}, at {to_rfc3339(told['event_time_ms'])}")
    if told["resource"] is not None:
        number = f", its number {told['sequence']}" if told["sequence"] is not None else ""
        lines.append(f"  about {told['resource']}{number}")
    if waits := why_it_waits(told, now_ms):
        lines.append(f"  waits {waits}")
    if told["next_retry_ms"] is not None:
        lines.append(f"  tried next at {to_rfc3339(told['next_retry_ms'])}")
    if told["reason"]:
        lines.append(f"  because {told['reason']}")
    if told["url"]:
        lines.append(f"  to {told['url']}")
    if told["replay_id"]:
        lines.append(f"  sent again by {told['replay_id']}")
    console.print(Text("\n".join([*lines, f"  as of {to_rfc3339(told['updated_ms'])}"])), soft_wrap=True)
    if told["attempts"]:
        console.print(attempts_grid(told["attempts"]))
