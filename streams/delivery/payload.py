"""Writes the body of a webhook in the dated version that its subscription asked for.

Producers write `data` in the shape of the first version, and it stays so. Each later version has one function that turns the
version before it into its own, so the data of a version has gone through every function up to its date, in order. A version is
added at the end of this file and never changed afterwards: what older subscriptions receive stays what it was.
"""

import re
from collections.abc import Callable
from datetime import date
from typing import Any

import msgspec
import orjson

from schemas.instants import to_rfc3339
from streams.errors import ConfigurationError, HooklineError

Transformation = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Turns an event type and its data, in the shape of the version before, into this version's data."""

VERSIONS: dict[str, tuple[Transformation, ...]] = {}
"""Every version, oldest first, with the functions that its data goes through; none means that the bytes are sent as they came."""

_DATED = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_SKIM = msgspec.json.Decoder(msgspec.Raw)


class SerialisationFailed(HooklineError):
    """An event's body cannot be written in the version that its subscription asks for."""


def register(version: str) -> Callable[[Transformation], Transformation]:
    """Add a version, named by its date, which must be later than every other."""
    if not _is_date(version):
        raise ConfigurationError(f"payload version {version!r} is not a date, such as 2024-01-01")
    newest = max(VERSIONS, default="")
    if version <= newest:
        raise ConfigurationError(f"payload version {version} is not later than {newest}: versions are only added at the end")

    def add(transformation: Transformation) -> Transformation:
        own = () if transformation is unchanged else (transformation,)
        VERSIONS[version] = (*VERSIONS.get(newest, ()), *own)
        return transformation

    return add


def unchanged(event_type: str, data: dict[str, Any]) -> dict[str, Any]:
    """Leave the data as it is; a version of this alone never parses it."""
    return data


def body_of(event_id: str, event_type: str, time_ms: int, data: bytes, version: str, sequence: int | None) -> bytes:
    """Write the body that is frozen at the first attempt and signed anew at each, or raise SerialisationFailed."""
    transformations = VERSIONS.get(version)
    if transformations is None:
        raise SerialisationFailed(f"event {event_id}: there is no payload version {version[:40]!r}: choose from {', '.join(VERSIONS)}")
    if transformations:
        data = _transformed(event_id, event_type, data, version, transformations)
    else:
        _require_json(event_id, data)
    try:
        timestamp = to_rfc3339(time_ms)
        body: dict[str, Any] = {
            "id": event_id,
            "type": event_type,
            "timestamp": timestamp,
            "version": version,
            "data": orjson.Fragment(data),
        }
        if sequence is not None:
            body["sequence"] = sequence
        return orjson.dumps(body)
    except (OverflowError, TypeError) as error:
        raise SerialisationFailed(f"event {event_id!r} of {time_ms} ms cannot be written as JSON: {error}") from None


def _transformed(event_id: str, event_type: str, data: bytes, version: str, transformations: tuple[Transformation, ...]) -> bytes:
    try:
        shaped = orjson.loads(data)
        for transformation in transformations:
            shaped = transformation(event_type, shaped)
        if not isinstance(shaped, dict):
            raise TypeError(f"it became {type(shaped).__name__} in place of an object")
        return orjson.dumps(shaped)
    except orjson.JSONDecodeError as error:
        raise SerialisationFailed(f"event {event_id}: its data is not JSON: {error}") from None
    except Exception as error:  # a version is written for the events that its author knew, and meets others
        reason = f"{type(error).__name__}: {error}"[:300]
        raise SerialisationFailed(f"event {event_id} of type {event_type} cannot be turned into version {version}: {reason}") from error


def _require_json(event_id: str, data: bytes) -> None:
    """Skim the data without building anything of it, for a fragment that is not whole JSON could add fields to the body."""
    try:
        _SKIM.decode(data)
        str(data, "utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SerialisationFailed(f"event {event_id}: its data is not JSON: {error}") from None


def _is_date(text: str) -> bool:
    try:
        return _DATED.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


register("2024-01-01")(unchanged)

LATEST = max(VERSIONS)
"""What a subscription takes that asks for no version."""
