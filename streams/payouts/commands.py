"""What is asked of payouts: commands are read, in Avro or JSON, and judged before anything is done."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

import schemas
from streams.errors import MalformedRecord
from streams.log.records import Record
from streams.payouts.money import BadAmount, checked_minor, exponent_of, from_decimal
from streams.payouts.payout import Payout
from streams.payouts.policy import CHANNELS, Rules

DAY_MS = 24 * 3_600_000
SCHEDULED_MS_MOST = 366 * DAY_MS
ITEMS_MAX = 100_000
ID_LENGTH_MAX, KEY_LENGTH_MAX, NOTES_LENGTH_MAX = 128, 256, 2_000
METADATA_LENGTH_MAX = 8_000
BODIES = {
    "SUBMIT": "submit", "SUBMIT_BATCH": "submit_batch", "CANCEL": "cancel", "RESOLVE": "resolve", "FUND_ACCOUNT": "fund_account",
    "REGISTER_BENEFICIARY": "register_beneficiary",
}  # fmt: skip
"""The one field that each kind of command fills."""


class Command(msgspec.Struct, frozen=True):
    """One command; its body is as payout_command.avsc has it."""

    id: str
    merchant: str
    kind: str
    body: Mapping[str, Any]
    issued_by: str | None = None
    trace_id: str | None = None


class Refused(msgspec.Struct, frozen=True):
    """A command that has no effect, and why."""

    reason: str
    detail: str


def read(record: Record) -> Command:
    """Read a command; what is none goes to the DLQ, for there is nobody to answer."""
    value = record.value or b""
    fields = schemas.decode(_from_json(value) if value[:1] == b"{" else value, schemas.PAYOUT_COMMAND)
    if (record.key or b"").decode(errors="replace") != fields["merchant"]:
        raise MalformedRecord(f"the command's merchant {fields['merchant'][:80]!r} is not its record's key: write the merchant as the key")
    if not _is_name(fields["merchant"], ID_LENGTH_MAX):
        raise MalformedRecord(f"the command's merchant {fields['merchant'][:80]!r} must be visible ASCII without spaces")
    if not _is_name(fields["id"], ID_LENGTH_MAX):
        raise MalformedRecord(
            f"the command's id {fields['id'][:80]!r} must be 1 to {ID_LENGTH_MAX} visible ASCII characters without spaces"
        )
    body = fields.get(BODIES.get(fields["kind"], ""))
    kind = fields["kind"] if body else "UNKNOWN"
    return Command(fields["id"], fields["merchant"], kind, body or {}, _short(fields["issued_by"]), _short(fields["trace_id"]))


def _short(text: str | None) -> str | None:
    return text and text[:KEY_LENGTH_MAX]


def _from_json(value: bytes) -> bytes:
    """The same command as Avro. Floats are refused, for Avro would cut them down to integers."""
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise MalformedRecord(f"the command is not JSON: {error}") from None
    if _has_float(fields):
        raise MalformedRecord('the command has a number with a fraction: write an amount as text, "1234.50", or in minor units')
    return schemas.encode(schemas.PAYOUT_COMMAND, fields)


def _has_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_float(each) for each in value.values())
    return isinstance(value, float) or (isinstance(value, list) and any(_has_float(each) for each in value))


def _is_name(text: str, length_max: int) -> bool:
    return 0 < len(text) <= length_max and text.isascii() and text.isprintable() and " " not in text


def why_no_name(**names: str | None) -> Refused | None:
    """Refuse ids that could not be keys: they travel in keys, headers and addresses."""
    for name, text in names.items():
        if text is not None and not _is_name(text, ID_LENGTH_MAX):
            return Refused("bad_id", f"{name} {text[:80]!r} must be 1 to {ID_LENGTH_MAX} visible ASCII characters without spaces")
    return None


def to_payout(command: Command, beneficiary: Mapping[str, Any] | None, rules: Rules, now_ms: int) -> Payout | Refused:
    """Judge a SUBMIT: the payout that it asks for, or why it is refused."""
    body = command.body
    refused = why_no_name(payout_id=body["payout_id"], beneficiary_id=body["beneficiary_id"], batch_id=body["batch_id"])
    if refused is not None:
        return refused
    key: str = body["idempotency_key"]
    if not 0 < len(key) <= KEY_LENGTH_MAX or not key.isprintable():
        return Refused("bad_idempotency_key", f"the idempotency key must be 1 to {KEY_LENGTH_MAX} printable characters")
    if sum(len(name) + len(text) for name, text in body["metadata"].items()) > METADATA_LENGTH_MAX:
        return Refused("metadata_too_large", f"metadata may have {METADATA_LENGTH_MAX} characters in all")
    try:
        amount_minor = amount_of(body)
    except BadAmount as error:
        return Refused("bad_amount", str(error))
    scheduled_ms = body["scheduled_ms"]
    if scheduled_ms is not None and scheduled_ms > now_ms + SCHEDULED_MS_MOST:
        return Refused("bad_schedule", "it is scheduled more than a year from now: check that the time is in milliseconds")
    channel, currency = body["channel"], body["currency"]
    refused = why_unfit(channel, currency, beneficiary, rules) or _why_not_amount(amount_minor, channel, currency, rules)
    if refused is not None:
        return refused
    return Payout(
        payout_id=body["payout_id"],
        merchant=command.merchant,
        beneficiary_id=body["beneficiary_id"],
        channel=channel,
        currency=currency,
        amount_minor=amount_minor,
        fee_minor=rules.fee_of(channel, currency).of(amount_minor),
        idempotency_key=key,
        fingerprint=fingerprint_of(body, amount_minor),
        command_id=command.id,
        created_ms=now_ms,
        scheduled_ms=scheduled_ms,
        batch_id=body["batch_id"],
        batch_index=body["batch_index"],
        trace_id=command.trace_id,
        metadata=dict(body["metadata"]),
        beneficiary=dict(beneficiary or {}),
    )


def amount_of(body: Mapping[str, Any]) -> int:
    """The amount in minor units, however it was written."""
    decimal, minor = body["amount"], body["amount_minor"]
    if (decimal is None) == (minor is None):
        raise BadAmount("give either amount or amount_minor")
    exponent_of(body["currency"])
    return from_decimal(decimal, body["currency"]) if decimal is not None else checked_minor(minor)


def fingerprint_of(body: Mapping[str, Any], amount_minor: int) -> str:
    """Names what is asked for, however it is written and whatever the payout is called."""
    said = [
        body["beneficiary_id"], amount_minor, body["currency"], body["channel"], body["scheduled_ms"], body["batch_id"],
        body["batch_index"], sorted(body["metadata"].items()),
    ]  # fmt: skip
    return hashlib.sha256(orjson.dumps(said)).hexdigest()[:32]


def why_unfit(channel: str, currency: str, beneficiary: Mapping[str, Any] | None, rules: Rules) -> Refused | None:
    """Why this beneficiary cannot be paid through this channel now; asked when a payout is taken, and again when its time comes."""
    if channel not in CHANNELS and channel not in rules.policies:
        return Refused("unknown_channel", f"there is no channel {channel[:40]!r}: those known are {', '.join(CHANNELS)}")
    if channel not in rules.available:
        return Refused("channel_unavailable", f"{channel} is not available")
    if beneficiary is None:
        return Refused("unknown_beneficiary", "the beneficiary is not registered: send REGISTER_BENEFICIARY first")
    if beneficiary["state"] != "ACTIVE":
        return Refused("inactive_beneficiary", f"the beneficiary is {beneficiary['state']}")
    if beneficiary["channel"] != channel:
        return Refused("wrong_channel", f"the beneficiary is reached by {beneficiary['channel']}")
    if beneficiary["currency"] not in (None, currency):
        return Refused("wrong_currency", f"the beneficiary takes {beneficiary['currency']}")
    return None


def _why_not_amount(amount_minor: int, channel: str, currency: str, rules: Rules) -> Refused | None:
    limits, fee = rules.limits_of(channel, currency), rules.fee_of(channel, currency).of(amount_minor)
    if amount_minor < limits.least_minor or (limits.most_minor is not None and amount_minor > limits.most_minor):
        most = "any amount" if limits.most_minor is None else limits.most_minor
        return Refused("outside_limits", f"{channel} takes from {limits.least_minor} to {most} minor units of {currency}")
    if fee >= amount_minor:
        return Refused("fee_exceeds_amount", f"the fee of {fee} leaves nothing of {amount_minor}")
    return None
