"""How events come in from producers, in four forms, and how ours go out."""

from collections.abc import Sequence

from msgspec import Raw

from schemas.catalogue import EVENT
from schemas.codec import MAGIC, decode, encode
from schemas.event import Event, is_traceparent
from schemas.instants import from_rfc3339, to_rfc3339
from schemas.json_events import Envelope, read_envelope
from streams.errors import MalformedRecord

Headers = Sequence[tuple[str, bytes | None]]

SPEC_VERSION = "1.0"
STRUCTURED = "application/cloudevents"


def encode_event(event: Event) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Value and CloudEvents headers of an event; its record's key is its merchant."""
    value = encode(
        EVENT,
        {
            "id": event.id,
            "type": event.type,
            "source": event.source,
            "merchant": event.merchant,
            "resource": event.resource,
            "time_ms": event.time_ms,
            "data": event.data,
            "data_content_type": event.data_content_type,
            "traceparent": event.traceparent,
        },
    )
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", event.id.encode()),
        ("ce_type", event.type.encode()),
        ("ce_source", event.source.encode()),
        ("ce_time", to_rfc3339(event.time_ms).encode()),
        ("content-type", b"application/avro"),
    ]
    if event.resource is not None:
        headers.append(("ce_subject", event.resource.encode()))
    if event.traceparent is not None:
        headers.append(("traceparent", event.traceparent.encode()))
    return value, headers


def decode_event(value: bytes | None, headers: Headers | None, key: bytes | None, timestamp_ms: int | None = None) -> Event:
    """Read an event in any of its forms; `timestamp_ms`, the record's own, is the time of one that tells none."""
    if not value:
        raise MalformedRecord("an event's record has no value: write the event as Avro or JSON")
    if value[0] == MAGIC:
        return _from_avro(value, headers, key)
    envelope = _envelope(value, _read(headers or ()))
    return Event(
        id=envelope.id or "",
        type=envelope.type or "",
        source=envelope.source or "",
        merchant=_merchant(envelope.merchant, key),
        time_ms=_time_ms(envelope.time, timestamp_ms),
        data=envelope.payload(),
        resource=envelope.subject or envelope.resource or None,
        data_content_type=envelope.datacontenttype or "application/json",
        traceparent=_trace(envelope.traceparent),
    )


def _from_avro(value: bytes, headers: Headers | None, key: bytes | None) -> Event:
    # The value holds the whole event; the headers are there for those who do not decode it.
    fields = decode(value, EVENT)
    fields["merchant"] = _merchant(fields["merchant"], key)
    trace = fields["traceparent"]
    if trace is None and headers:
        trace = next((_text(name, found) for name, found in headers if name == "traceparent" and found), None)
    fields["traceparent"] = _trace(trace)
    return Event(**fields)


def _envelope(value: bytes, attributes: dict[str, str]) -> Envelope:
    content_type = attributes.get("content-type", "").lower()
    if content_type.startswith(STRUCTURED):
        if not content_type.startswith(f"{STRUCTURED}+json"):
            raise MalformedRecord(f"{content_type[:80]!r} is not taken: send one CloudEvent per record, {STRUCTURED}+json or binary")
        return _conforming(read_envelope(value))
    if "ce_specversion" in attributes or "ce_id" in attributes:
        return _conforming(_from_binary(value, attributes))
    plain = read_envelope(value)
    if plain.specversion is not None:
        return _conforming(plain)
    # Producers who know nothing of CloudEvents need not say who they are; what they send is told apart by its id alone.
    plain.source = plain.source or "json"
    plain.traceparent = plain.traceparent or attributes.get("traceparent")
    return plain


def _from_binary(value: bytes, attributes: dict[str, str]) -> Envelope:
    return Envelope(
        specversion=attributes.get("ce_specversion"),
        id=attributes.get("ce_id"),
        type=attributes.get("ce_type"),
        source=attributes.get("ce_source"),
        subject=attributes.get("ce_subject"),
        time=attributes.get("ce_time"),
        merchant=attributes.get("ce_merchant"),
        datacontenttype=attributes.get("content-type"),
        traceparent=attributes.get("ce_traceparent") or attributes.get("traceparent"),
        data=Raw(value),
    )


def _conforming(envelope: Envelope) -> Envelope:
    if envelope.specversion != SPEC_VERSION:
        raise MalformedRecord(f"a CloudEvent of specversion {envelope.specversion} is not taken: send {SPEC_VERSION}")
    return envelope


def _read(headers: Headers) -> dict[str, str]:
    """Headers by lower-case name, those that may concern an event."""
    wanted = ((name.lower(), found) for name, found in headers if found is not None)
    return {name: _text(name, found) for name, found in wanted if name.startswith("ce_") or name in ("content-type", "traceparent")}


def _text(name: str, found: bytes) -> str:
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise MalformedRecord(f"the header {name[:80]} is not UTF-8: {found[:40]!r}") from None


def _merchant(given: str | None, key: bytes | None) -> str:
    """Whom the event concerns: what the event says, which must be its record's key, or else the key."""
    if not key:
        raise MalformedRecord("the event's record has no key: write the merchant as its key, for it decides the partition and so the order")
    named = _text("key", key)
    if given and given != named:
        raise MalformedRecord(f"the event's merchant {given[:80]!r} is not its record's key {named[:80]!r}: write the merchant as the key")
    return named


def _time_ms(given: str | None, timestamp_ms: int | None) -> int:
    if given:
        try:
            return from_rfc3339(given)
        except ValueError as error:
            raise MalformedRecord(f"the event's time cannot be read: {error}") from None
    if timestamp_ms is None:
        raise MalformedRecord("the event's time is missing, and its record has none either: give it as RFC 3339")
    return timestamp_ms


def _trace(given: str | None) -> str | None:
    """Leave out a trace that cannot be read, as W3C asks; its event goes on."""
    return given if given and is_traceparent(given) else None
