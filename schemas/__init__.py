"""Every record's value: its Avro schema, its id, and how it becomes bytes and back."""

from schemas.catalogue import (
    BENEFICIARY,
    BUILT_IN,
    DEAD_LETTER,
    DELIVERY,
    DELIVERY_STATUS,
    EVENT,
    LEDGER_TRANSFER,
    OPERATIONAL_EVENT,
    PAYOUT_BATCH_STATUS,
    PAYOUT_COMMAND,
    PAYOUT_REPLY,
    PAYOUT_STATUS,
    PAYOUT_TASK,
    REPLAY_REQUEST,
    SUBSCRIPTION,
    Schema,
)
from schemas.codec import Codec, decode, encode, schema_in, use
from schemas.event import Event
from schemas.events import decode_event, encode_event
from schemas.ids import BuiltInIds, Ids

__all__ = [
    "BENEFICIARY",
    "BUILT_IN",
    "DEAD_LETTER",
    "DELIVERY",
    "DELIVERY_STATUS",
    "EVENT",
    "LEDGER_TRANSFER",
    "OPERATIONAL_EVENT",
    "PAYOUT_BATCH_STATUS",
    "PAYOUT_COMMAND",
    "PAYOUT_REPLY",
    "PAYOUT_STATUS",
    "PAYOUT_TASK",
    "REPLAY_REQUEST",
    "SUBSCRIPTION",
    "BuiltInIds",
    "Codec",
    "Event",
    "Ids",
    "Schema",
    "decode",
    "decode_event",
    "encode",
    "encode_event",
    "schema_in",
    "use",
]
