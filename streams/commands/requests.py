"""What may be asked of the replay agent, and what is refused before it is written. Pure.

Each function gives a whole request, as replay_request.avsc has it, and raises ConfigurationError with a reason that a person can act
on.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

import schemas
from streams.errors import ConfigurationError

NOTE_LENGTH_MAX, WHO_LENGTH_MAX, FILTER_LENGTH_MAX = 1_000, 200, 1_200
RATE_PER_S_LEAST, RATE_PER_S_MAX = 0.001, 10_000
BACKLOG_MS = 24 * 3_600_000
"""How far behind the events a worker may have been; well below the time for which it knows what it has delivered."""

Verb = Literal["PAUSE", "RESUME", "STOP"]
Triage = Literal["ACKNOWLEDGE", "DISCARD"]


class Asked(msgspec.Struct, frozen=True):
    """Who asks for something, when and why; `id` names what is asked for from then on."""

    id: str
    by: str
    at_ms: int
    note: str | None = None


class Selection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which dead letters or events are meant: all parts that are given must hold."""

    dead_letter_id: str | None = None
    event_id: str | None = None
    source: str | None = None
    subscription_id: str | None = None
    merchant: str | None = None
    event_type: str | None = None
    reason: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def parts(self) -> dict[str, Any]:
        """What is given."""
        parts: dict[str, Any] = msgspec.to_builtins(self)
        return parts


def replay_letters(asked: Asked, selection: Selection, rate_per_s: float | None = None, dry_run: bool = False) -> dict[str, Any]:
    """Send dead deliveries again, and poison records as they were."""
    return _start(asked, selection, rate_per_s, dry_run, from_log="DEAD_LETTERS")


def replay_events(
    asked: Asked, selection: Selection, rate_per_s: float | None = None, dry_run: bool = False, missing_only: bool = False
) -> dict[str, Any]:
    """Send a stretch of the events log to a subscription again."""
    if selection.subscription_id is None:
        raise ConfigurationError("events are replayed to one subscription: say which with --subscription")
    if selection.from_ms is None:
        raise ConfigurationError("a replay of events begins somewhere: say where with --from, such as --from 24h")
    return _start(asked, selection, rate_per_s, dry_run, from_log="EVENTS", missing_only=missing_only)


def replay_since_disabled(asked: Asked, subscription: Mapping[str, Any], rate_per_s: float | None = None) -> dict[str, Any]:
    """Send a subscription what it missed: `subscription` is what it was before it was enabled.

    What was written before it was disabled may have been read only afterwards, so the replay begins earlier: what the subscription
    was given then is known, and is not sent again.
    """
    if subscription["state"] != "DISABLED":
        raise ConfigurationError(
            f"subscription {subscription['id']} is {subscription['state']}, so it does not tell since when it missed something: "
            f"say it yourself, with `hookline replay --subscription {subscription['id']} --missing-only --from …`"
        )
    from_ms = max(subscription["created_ms"], subscription["state_since_ms"] - BACKLOG_MS)
    selection = Selection(subscription_id=subscription["id"], from_ms=from_ms)
    return _start(asked, selection, rate_per_s, dry_run=False, from_log="EVENTS", missing_only=True, include_cancelled=True)


def triage(asked: Asked, action: Triage, selection: Selection) -> dict[str, Any]:
    """Say of dead letters that somebody knows of them, or let them go."""
    if not asked.note:
        raise ConfigurationError(f"to {action.lower()} a dead letter takes a note for those who come after you: give it with --note")
    if not selection.parts():
        raise ConfigurationError(f"say which dead letters to {action.lower()}: by id, --event, or filters such as --reason and --since")
    return _request(asked, action, selection)


def retry_now(asked: Asked, event_id: str, subscription_id: str) -> dict[str, Any]:
    """Do not wait for a delivery's next attempt."""
    return _request(asked, "RETRY_NOW", Selection(event_id=event_id, subscription_id=subscription_id))


def cancel(asked: Asked, event_id: str, subscription_id: str | None = None) -> dict[str, Any]:
    """Attempt an event's waiting deliveries no more."""
    return _request(asked, "CANCEL", Selection(event_id=event_id, subscription_id=subscription_id))


def control(asked: Asked, verb: Verb) -> dict[str, Any]:
    """Pause, resume or stop the replay of this id."""
    return _request(asked, verb, Selection())


def reason_named(text: str) -> str:
    """Read a dead letter's reason, in any case."""
    name = text.strip().upper().replace("-", "_")
    if name not in REASONS:
        raise ConfigurationError(f"there is no reason {text[:40]!r}: choose from {', '.join(REASONS)}")
    return name


def _start(asked: Asked, selection: Selection, rate_per_s: float | None, dry_run: bool, **parts: Any) -> dict[str, Any]:
    if rate_per_s is not None and not RATE_PER_S_LEAST <= rate_per_s <= RATE_PER_S_MAX:
        raise ConfigurationError(f"the rate a second is {rate_per_s:g}: give {RATE_PER_S_LEAST:g} to {RATE_PER_S_MAX:g}")
    return {**_request(asked, "START", selection), "rate_per_s": rate_per_s, "dry_run": dry_run, **parts}


def _request(asked: Asked, action: str, selection: Selection) -> dict[str, Any]:
    _require_text("person who asks (--by)", asked.by, WHO_LENGTH_MAX)
    if asked.note is not None:
        _require_text("note", asked.note, NOTE_LENGTH_MAX)
    parts = selection.parts()
    for name, value in parts.items():
        if isinstance(value, str):
            _require_text(name.replace("_", " "), value, FILTER_LENGTH_MAX)
    _require_stretch(selection, asked.at_ms)
    return {"id": asked.id, "action": action, **parts, "requested_by": asked.by, "requested_ms": asked.at_ms, "note": asked.note}


def _require_stretch(selection: Selection, now_ms: int) -> None:
    if selection.from_ms is not None and selection.from_ms > now_ms:
        raise ConfigurationError("it begins in the future, where nothing has happened yet: give an earlier time")
    if selection.from_ms is not None and selection.to_ms is not None and selection.from_ms >= selection.to_ms:
        raise ConfigurationError("it ends before it begins: give a later end, or an earlier beginning")


def _require_text(name: str, text: str, length_max: int) -> None:
    if not 0 < len(text) <= length_max or not text.isprintable():
        raise ConfigurationError(f"the {name} must be 1 to {length_max} printable characters on one line")


def _symbols(schema: schemas.Schema, field: str) -> tuple[str, ...]:
    found = next(each for each in schema.parsed["fields"] if each["name"] == field)
    return tuple(symbol for symbol in found["type"]["symbols"] if symbol != "UNKNOWN")


REASONS = _symbols(schemas.DEAD_LETTER, "reason")
TRIAGES = _symbols(schemas.DEAD_LETTER, "triage")
