"""What is written for a dead letter: its delivery or its record once more, and what people did about it."""

from collections.abc import Mapping
from typing import Any

import schemas
from streams.delivery.delivery import Delivery, encode
from streams.delivery.generations import NEXT
from streams.delivery.subscription import Subscriptions
from streams.log.records import Record, Write
from streams.replay.request import Request
from topology import flow, topics

WRITABLE = {topic.name: topic for topic in flow.REPLAY.writes}


def as_delivery(letter: Mapping[str, Any], replay_id: str) -> Write:
    """The next generation of a dead delivery; a body that was sent stays as it was."""
    is_body = letter["payload_version"] is not None
    delivery = Delivery(
        event_id=letter["event_id"],
        event_type=letter["event_type"],
        source=letter["source"],
        merchant=letter["merchant"],
        subscription_id=letter["subscription_id"],
        event_time_ms=letter["event_time_ms"],
        origin=letter["origin"],
        resource=letter["resource"],
        generation=NEXT,
        body=letter["payload"] if is_body else None,
        data=None if is_body else letter["payload"],
        payload_version=letter["payload_version"],
        sequence=letter["sequence"],
        history=letter["history"],
        replay_id=replay_id,
        traceparent=letter["traceparent"],
    )
    return Write(topics.DELIVERIES, delivery.key, encode(delivery))


def as_record(letter: Mapping[str, Any], origin: Record | None) -> Write | str:
    """The record once more where it came from, byte for byte; or why not."""
    came_from = letter["origin"]
    topic = WRITABLE.get(came_from["topic"])
    if topic is None:
        return f"a record of {came_from['topic']} cannot be replayed: the replay agent does not write there"
    if letter["payload"] is not None:
        headers = [(header["name"], header["value"] or b"") for header in letter["headers"]]
        return Write(topic, letter["key"], letter["payload"], headers, came_from["partition"])
    if origin is None:
        return f"the record at {came_from['topic']}-{came_from['partition']}@{came_from['offset']} is no longer there"
    return Write(topic, origin.key, origin.value, origin.headers, came_from["partition"])


def why_undeliverable(letter: Mapping[str, Any], subscriptions: Subscriptions) -> str | None:
    """Why nobody would take it now."""
    subscription = subscriptions.by_id.get(letter["subscription_id"])
    if subscription is None:
        return f"subscription {letter['subscription_id']} was deleted"
    if subscription.state == "DISABLED":
        return f"subscription {subscription.id} is disabled: enable it, and replay again"
    return None


def triaged(letter: Mapping[str, Any], triage: str, request: Request, now_ms: int) -> Write:
    """What people did about it, under the letter's own key and without what makes it large."""
    value = {
        **letter,
        "payload": None,
        "headers": [],
        "history": [],
        "triage": triage,
        "triage_by": request.requested_by,
        "triage_note": request.note,
        "triage_ms": now_ms,
    }
    return Write(topics.DLQ, letter["id"].encode(), schemas.encode(schemas.DEAD_LETTER, value))
