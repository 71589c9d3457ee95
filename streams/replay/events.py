"""An event of the log once more for one subscription: which delivery it makes."""

import msgspec

from schemas.events import decode_event
from streams.delivery import delivery as deliveries
from streams.delivery.generations import NEXT
from streams.delivery.subscription import Subscription
from streams.errors import MalformedRecord
from streams.log.records import Record, Write
from streams.replay.request import Request
from topology import topics

MISSING = 0
"""The generation of a delivery that may not have been made yet: where one is known, this one is ignored."""


def delivery_of(record: Record, subscription: Subscription, request: Request, bytes_max: int) -> Write | str | None:
    """The delivery that an event makes; why it makes none; or None where it was not asked for."""
    try:
        event = decode_event(record.value, record.headers, record.key, record.timestamp_ms)
    except MalformedRecord as error:
        return f"{record.reference} cannot be read: {error}"
    asked = ((request.event_id, event.id), (request.source, event.source), (request.event_type, event.type))
    if any(wanted not in (None, found) for wanted, found in asked) or not subscription.wants(event):
        return None
    delivery = msgspec.structs.replace(
        deliveries.from_event(event, subscription.id, record),
        generation=MISSING if request.missing_only else NEXT,
        replay_id=request.id,
    )
    write = Write(topics.DELIVERIES, delivery.key, deliveries.encode(delivery))
    if write.bytes_at_most > bytes_max:
        return f"{record.reference} is too large to be written again: {write.bytes_at_most} bytes"
    return write
