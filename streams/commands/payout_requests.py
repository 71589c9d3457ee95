"""What may be asked of payouts, as payout_command.avsc has it; what nobody could be answered for is refused before it is written. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from schemas.instants import from_rfc3339
from streams.commands.times import duration_ms
from streams.errors import ConfigurationError
from streams.payouts.commands import BODIES, ITEMS_MAX, why_no_name


class Asked(msgspec.Struct, frozen=True):
    """Who asks for something, for which merchant and when; `id` names the command."""

    id: str
    merchant: str
    by: str
    at_ms: int
    trace_id: str | None = None


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One payout as people write it: a line of a batch's file, or the options of `submit`."""

    beneficiary_id: str | None = None
    amount: str | None = None
    amount_minor: int | None = None
    currency: str | None = None
    channel: str | None = None
    payout_id: str | None = None
    idempotency_key: str | None = None
    scheduled: str | None = None
    metadata: dict[str, str] = {}


_item = msgspec.json.Decoder(Item)
NEEDED = ("beneficiary_id", "currency", "channel")


def command(asked: Asked, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """One command in its envelope. Names that could be no keys are refused here, for their command would have no answer."""
    names = {"merchant": asked.merchant, "id": asked.id, "payout_id": body.get("payout_id"), "batch_id": body.get("batch_id")}
    if (refused := why_no_name(**names)) is not None:
        raise ConfigurationError(refused.detail)
    return {
        "id": asked.id, "merchant": asked.merchant, "kind": kind, "issued_ms": asked.at_ms, "issued_by": asked.by,
        "trace_id": asked.trace_id, BODIES[kind]: dict(body),
    }  # fmt: skip


def submit(asked: Asked, item: Item, batch_id: str | None = None, batch_index: int | None = None) -> dict[str, Any]:
    """Pay a beneficiary. The payout's id is its idempotency key where it is given no other."""
    if missing := [name for name in NEEDED if getattr(item, name) is None]:
        raise ConfigurationError(f"a payout takes {', '.join(missing)}")
    if (item.amount is None) == (item.amount_minor is None):
        raise ConfigurationError('a payout takes either an amount, as text such as "1234.50", or an amount_minor')
    if (batch_id is None) != (batch_index is None):
        raise ConfigurationError("an item of a batch takes the batch and its index in it")
    body = {
        **{name: getattr(item, name) for name in (*NEEDED, "amount", "amount_minor", "payout_id", "metadata")},
        "idempotency_key": item.idempotency_key or item.payout_id,
        "scheduled_ms": None if item.scheduled is None else due_ms(item.scheduled, asked.at_ms),
        "batch_id": batch_id,
        "batch_index": batch_index,
    }
    return command(asked, "SUBMIT", body)


def batch(asked: Asked, batch_id: str, lines: Iterable[bytes], usual: Item) -> list[dict[str, Any]]:
    """A batch's header and a command for each line, or a refusal of all: a payout must not be missing because of its neighbour.

    What a line leaves out is taken from `usual`; its payout is named by the batch and its place, so that a file sent again pays once.
    """
    items = [_read(number, line, usual, f"{batch_id}-{number - 1}") for number, line in enumerate(lines, 1)]
    if not 1 <= len(items) <= ITEMS_MAX:
        raise ConfigurationError(f"a batch has 1 to {ITEMS_MAX} items, and this one has {len(items)}")
    _require_different(items)
    header = {"batch_id": batch_id, "items_total": len(items), **_control_sum(items)}
    commands = [command(asked, "SUBMIT_BATCH", header)]
    for index, item in enumerate(items):
        try:
            named = msgspec.structs.replace(asked, id=f"{asked.id}-{index}")
            commands.append(submit(named, item, batch_id, index))
        except ConfigurationError as error:
            raise ConfigurationError(f"line {index + 1}: {error}") from None
    return commands


def _read(number: int, line: bytes, usual: Item, name: str) -> Item:
    try:
        given = _item.decode(line)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(f"line {number} is no payout: {error}. Nothing was written") from None
    changes = {
        "currency": given.currency or usual.currency,
        "channel": given.channel or usual.channel,
        "scheduled": given.scheduled or usual.scheduled,
        "payout_id": given.payout_id or name,
    }
    return msgspec.structs.replace(given, **changes)


def _require_different(items: Sequence[Item]) -> None:
    for what in ("payout_id", "idempotency_key"):
        seen: dict[str, int] = {}
        for number, item in enumerate(items, 1):
            name = str(getattr(item, what) or item.payout_id)
            if (first := seen.setdefault(name, number)) != number:
                raise ConfigurationError(f"line {number} has the {what} {name[:80]!r} of line {first}. Nothing was written")


def _control_sum(items: Sequence[Item]) -> dict[str, Any]:
    """The sum of all items where they all say it in minor units of one currency."""
    currencies = {item.currency for item in items}
    if len(currencies) > 1 or any(item.amount_minor is None for item in items):
        return {}
    return {"amount_minor_total": sum(item.amount_minor or 0 for item in items), "currency": currencies.pop()}


def due_ms(text: str, now_ms: int) -> int:
    """Read when something is to happen: RFC 3339, or in how long."""
    try:
        return from_rfc3339(text)
    except ValueError:
        pass
    try:
        return now_ms + duration_ms(text)
    except ConfigurationError:
        raise ConfigurationError(
            f"{text[:40]!r} is no time to come: write 2030-01-31T09:30:00Z, or in how long, such as 90s or 2h"
        ) from None


def metadata_in(pairs: Iterable[str]) -> dict[str, str]:
    """Read `name=value` pairs."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"{pair[:80]!r} is no metadata: write name=value")
        found[name] = value
    return found
