"""How a record that no agent can take goes to the DLQ: with its reason, its bytes where they fit, and where it came from."""

import schemas
from streams.log.records import Outcome, Record, Write
from topology import topics

PAYLOAD_BYTES_MAX = 400_000
"""A larger payload is left where it is and only referred to, so that its dead letter always fits."""


def dead_letter(record: Record, reason: str, now_ms: int) -> Outcome:
    """The Outcome of a poison record. The same trouble of the same record has the same id."""
    value = record.value or b""
    fits = len(value) <= PAYLOAD_BYTES_MAX
    letter = {
        "id": record.reference,
        "kind": "RECORD",
        "reason": "TOO_LARGE" if "too large" in reason else "MALFORMED",
        "detail": reason[:2_000],
        "payload": value if fits else None,
        "payload_size": len(value),
        "key": record.key,
        "headers": [{"name": name, "value": header} for name, header in record.headers] if fits else [],
        "origin": {"topic": record.topic.name, "partition": record.partition, "offset": record.offset, "timestamp_ms": record.timestamp_ms},
        "dead_ms": now_ms,
    }
    return Outcome([Write(topics.DLQ, record.reference.encode(), schemas.encode(schemas.DEAD_LETTER, letter))])
