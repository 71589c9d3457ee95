"""What an event is, and what every event keeps to: one that does not cannot be made."""

import re
from typing import Any

import msgspec
import orjson

from schemas.instants import MS_MAX
from streams.errors import MalformedRecord

ID_LENGTH_MAX = 256
TYPE_LENGTH_MAX = 256
MERCHANT_LENGTH_MAX = 128
SOURCE_LENGTH_MAX = 512
RESOURCE_LENGTH_MAX = 512

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_JSON_TYPE = re.compile(r"(application|text)/([a-z0-9.-]+\+)?json\s*(;[ -~]*)?", re.IGNORECASE)
_CONTENT_TYPE_LENGTH_MAX = 128


class Event(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Something that happened to a merchant."""

    id: str
    type: str
    source: str
    merchant: str
    time_ms: int
    data: bytes
    resource: str | None = None
    data_content_type: str = "application/json"
    traceparent: str | None = None

    def __post_init__(self) -> None:
        """Refuse what could not be delivered: id, type and merchant travel in HTTP headers, and are signed and compared."""
        _require_visible("id", self.id, ID_LENGTH_MAX)
        _require_visible("type", self.type, TYPE_LENGTH_MAX)
        _require_visible("merchant", self.merchant, MERCHANT_LENGTH_MAX)
        _require_printable("source", self.source, SOURCE_LENGTH_MAX)
        if self.resource is not None:
            _require_printable("resource", self.resource, RESOURCE_LENGTH_MAX)
        if not 0 <= self.time_ms <= MS_MAX:
            raise MalformedRecord(f"the event's time of {self.time_ms} ms is not between 1970 and 9999: give milliseconds since 1970")
        if self.traceparent is not None and not is_traceparent(self.traceparent):
            raise MalformedRecord(f"the event's traceparent {self.traceparent[:80]!r} is not a W3C one: leave it out, or mend it")
        if self.data_content_type != "application/json":
            _require_json_type(self.data_content_type)
        self.__dict__["fields"] = _json_object(self.data)

    @property
    def fields(self) -> dict[str, Any]:
        """`data`, parsed, for filters and versions to look into; what is sent on is made of the bytes."""
        fields: dict[str, Any] = self.__dict__["fields"]
        return fields


def is_traceparent(text: str) -> bool:
    """Whether a W3C trace can be read from it."""
    return _TRACEPARENT.fullmatch(text) is not None


def _require_visible(name: str, text: str, length_max: int) -> None:
    if not 0 < len(text) <= length_max:
        raise MalformedRecord(_wrong_length(name, text, length_max))
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise MalformedRecord(f"the event's {name} {text[:80]!r} must be visible ASCII without spaces, for it travels in HTTP headers")


def _require_printable(name: str, text: str, length_max: int) -> None:
    if not 0 < len(text) <= length_max:
        raise MalformedRecord(_wrong_length(name, text, length_max))
    if not text.isprintable():
        raise MalformedRecord(f"the event's {name} {text[:80]!r} must be printable, without control characters")


def _wrong_length(name: str, text: str, length_max: int) -> str:
    if not text:
        return f"the event's {name} is missing"
    return f"the event's {name} has {len(text)} characters: at most {length_max} are taken"


def _require_json_type(content_type: str) -> None:
    if len(content_type) > _CONTENT_TYPE_LENGTH_MAX or not _JSON_TYPE.fullmatch(content_type):
        raise MalformedRecord(f"the event's data is {content_type[:80]!r}: only JSON is taken, such as application/json")


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedRecord(f"the event's data is not JSON: {error}" if data else "the event's data is missing") from None
    if not isinstance(fields, dict):
        raise MalformedRecord(f"the event's data must be a JSON object, and is {type(fields).__name__}")
    return fields
