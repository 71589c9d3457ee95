"""What Hookline tells of itself: for operators in a topic, and to a merchant's operational subscriptions as an event like any other."""

from typing import Any

import orjson

import schemas
from schemas.event import Event
from schemas.events import encode_event
from streams.delivery.subscription import OPERATIONAL_SOURCE, Subscription
from streams.log.records import BY_KEY, Write
from topology import topics


def operational_event(
    kind: str,
    severity: str,
    subject: str,
    summary: str,
    subscription: Subscription | None,
    now_ms: int,
    *,
    deliver_to_merchant: bool = False,
    event_id: str | None = None,
    **details: str,
) -> list[Write]:
    """Tell that something happened, to a subscription or to all; `subject` makes its id: the same trouble told twice has the same."""
    identity = f"{kind}/{subject}"
    value: dict[str, Any] = {
        "id": identity,
        "type": kind,
        "severity": severity,
        "time_ms": now_ms,
        "source": "deliver",
        "summary": summary,
        "merchant": subscription.merchant if subscription else None,
        "subscription_id": subscription.id if subscription else None,
        "event_id": event_id,
        "contact": subscription.contact if subscription else None,
        "details": details,
    }
    about = subscription.id if subscription else kind
    writes = [Write(topics.OPERATIONAL_EVENTS, about.encode(), schemas.encode(schemas.OPERATIONAL_EVENT, value))]
    if subscription is not None and deliver_to_merchant:
        told = {"summary": summary, "subscription_id": subscription.id, "event_id": event_id, **details}
        event = Event(
            id=identity.replace(" ", "_"),
            type=kind,
            source=OPERATIONAL_SOURCE,
            merchant=subscription.merchant,
            time_ms=now_ms,
            data=orjson.dumps(told),
        )
        encoded, headers = encode_event(event)
        writes.append(Write(topics.EVENTS, subscription.merchant.encode(), encoded, headers, BY_KEY))
    return writes
