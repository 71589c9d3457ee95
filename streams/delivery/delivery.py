"""A delivery: one event on its way to one subscription. What it is, and the records that are written about it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

import schemas
from schemas.event import Event
from streams.delivery.results import Answer, Failure, Result
from streams.delivery.rules import describe, is_success
from streams.ladder.handler import DUE, RETURN
from streams.ladder.rules import Ladder
from streams.log.records import Record, Write
from topology import topics
from topology.topics import Topic

Reference = Mapping[str, Any]


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """As delivery.avsc has it. It is changed by making another."""

    event_id: str
    event_type: str
    source: str
    merchant: str
    subscription_id: str
    event_time_ms: int
    origin: Reference
    resource: str | None = None
    generation: int = 0
    attempts_spent: int = 0
    body: bytes | None = None
    data: bytes | None = None
    payload_version: str | None = None
    sequence: int | None = None
    slot_ms: int | None = None
    due_ms: int | None = None
    waits_for: str | None = None
    history: Sequence[Mapping[str, Any]] = ()
    replay_id: str | None = None
    traceparent: str | None = None

    @property
    def key(self) -> bytes:
        """Names it in topics; neither an event's nor a subscription's id has a space."""
        return f"{self.source} {self.event_id} {self.subscription_id}".encode()


def from_event(event: Event, subscription_id: str, record: Record) -> Delivery:
    """The first generation, before its first attempt."""
    return Delivery(
        event_id=event.id,
        event_type=event.type,
        source=event.source,
        merchant=event.merchant,
        subscription_id=subscription_id,
        event_time_ms=event.time_ms,
        origin=reference(record),
        resource=event.resource,
        data=event.data,
        traceparent=event.traceparent,
    )


def reference(record: Record) -> Reference:
    """Where a record is, as records tell it of each other."""
    return {"topic": record.topic.name, "partition": record.partition, "offset": record.offset, "timestamp_ms": record.timestamp_ms}


def decode(value: bytes | None) -> Delivery:
    """Read a record of the deliveries topic."""
    return Delivery(**schemas.decode(value or b"", schemas.DELIVERY))


def encode(delivery: Delivery) -> bytes:
    """Its record's value."""
    return schemas.encode(schemas.DELIVERY, {name: getattr(delivery, name) for name in delivery.__struct_fields__})


def attempt(delivery: Delivery, result: Result, at_ms: int, request_headers: Mapping[str, str]) -> dict[str, Any]:
    """What an attempt came to, for the history."""
    answer = result if isinstance(result, Answer) else None
    return {
        "number": delivery.attempts_spent + 1,
        "generation": delivery.generation,
        "at_ms": at_ms,
        "duration_ms": result.duration_ms,
        "code": answer.code if answer else None,
        "error": None if is_success(result) else describe(result),
        "ambiguous": isinstance(result, Failure) and result.ambiguous,
        "request_headers": request_headers,
        "response_headers": answer.headers if answer else {},
        "response": answer.body if answer else b"",
    }


# What is written about it


def sent_on(delivery: Delivery, ladder: Ladder, now_ms: int) -> Write:
    """To the rung where it waits until it is due, or straight back."""
    due_ms = delivery.due_ms or now_ms
    return _sent(delivery, ladder.next_hop(due_ms, now_ms) or topics.DELIVERIES, due_ms)


def sent_back(delivery: Delivery, now_ms: int) -> Write:
    """Through the log without a wait."""
    return _sent(delivery, topics.DELIVERIES, delivery.due_ms or now_ms)


def _sent(delivery: Delivery, topic: Topic, due_ms: int) -> Write:
    return Write(topic, delivery.key, encode(delivery), ((DUE, b"%d" % due_ms), (RETURN, topics.DELIVERIES.name.encode())))


def status(delivery: Delivery, state: str, now_ms: int, *, reason: str | None = None, url: str | None = None) -> Write:
    """Where it stands."""
    value = {
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "source": delivery.source,
        "merchant": delivery.merchant,
        "subscription_id": delivery.subscription_id,
        "resource": delivery.resource,
        "event_time_ms": delivery.event_time_ms,
        "generation": delivery.generation,
        "state": state,
        "waits_for": delivery.waits_for,
        "reason": reason,
        "attempts": delivery.history,
        "next_retry_ms": delivery.due_ms,
        "sequence": delivery.sequence,
        "url": url,
        "origin": delivery.origin,
        "replay_id": delivery.replay_id,
        "updated_ms": now_ms,
    }
    return Write(topics.DELIVERY_STATUS, delivery.key, schemas.encode(schemas.DELIVERY_STATUS, value))


def dead_letter(delivery: Delivery, reason: str, detail: str, now_ms: int) -> Write:
    """To the DLQ, with all that a replay needs."""
    payload = delivery.body if delivery.body is not None else delivery.data or b""
    identity = f"{delivery.subscription_id}/{delivery.event_id}/{delivery.generation}/{delivery.source}"
    value = {
        "id": identity,
        "kind": "DELIVERY",
        "reason": reason,
        "detail": detail,
        "payload": payload,
        "payload_size": len(payload),
        "key": delivery.key,
        "origin": delivery.origin,
        "history": delivery.history,
        "merchant": delivery.merchant,
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "event_time_ms": delivery.event_time_ms,
        "source": delivery.source,
        "subscription_id": delivery.subscription_id,
        "resource": delivery.resource,
        "generation": delivery.generation,
        "payload_version": delivery.payload_version if delivery.body is not None else None,
        "sequence": delivery.sequence,
        "traceparent": delivery.traceparent,
        "dead_ms": now_ms,
    }
    return Write(topics.DLQ, identity.encode(), schemas.encode(schemas.DEAD_LETTER, value))
