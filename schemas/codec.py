"""Turns a record's value into framed Avro bytes and back."""

from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any, NamedTuple

import fastavro
from fastavro.read import SchemaResolutionError

from schemas.catalogue import BUILT_IN, Schema
from schemas.ids import BuiltInIds, Ids
from schemas.writing import writer_of
from streams.errors import ConfigurationError, MalformedRecord

MAGIC = 0
PREFIX_SIZE = 5  # the magic byte and a big-endian schema id, as every schema registry's client writes it

# What fastavro raises on bytes or values that are not what the schema says.
_UNREADABLE = (EOFError, ValueError, LookupError, TypeError, OverflowError, MemoryError, SchemaResolutionError)
_UNWRITABLE = (ValueError, LookupError, TypeError, OverflowError, AttributeError)


class _Reading(NamedTuple):
    """How bytes of one prefix are read: as they were written, or resolved to the reader's schema where that is another."""

    writer: dict[str, Any]
    reader: dict[str, Any] | None


class Codec:
    """Encodes and decodes with ids from one place; what it has looked up once, it knows."""

    def __init__(self, ids: Ids, topics: Mapping[Schema, Iterable[str]]) -> None:
        """Ask now for the id of each schema that will be written, by the topics that carry it; nothing is asked while encoding."""
        self._ids = ids
        self._prefixes = {schema: prefix(_only_id(ids, schema, names)) for schema, names in topics.items()}
        self._quick = {schema: (self._prefixes[schema], write) for schema in topics if (write := writer_of(schema.parsed))}
        self._readings: dict[tuple[Schema, bytes], _Reading] = {}

    def encode(self, schema: Schema, value: Mapping[str, Any]) -> bytes:
        """Frame and bytes of one record; a missing or unknown field is refused, a left-out one with a default is that default."""
        quick = self._quick.get(schema)
        if quick is not None:
            known, write = quick
            written = bytearray(known)
            try:
                write(written, value)
            except Exception:  # noqa: BLE001 - whatever it cannot take, fastavro writes or says what is wrong with it
                return self._encode_as_fastavro_does(schema, value)
            return bytes(written)
        return self._encode_as_fastavro_does(schema, value)

    def _encode_as_fastavro_does(self, schema: Schema, value: Mapping[str, Any]) -> bytes:
        known = self._prefixes.get(schema)
        if known is None:
            raise ConfigurationError(f"no id is known for {schema}: name the topics that carry it where the codec is made")
        stream = BytesIO()
        stream.write(known)
        try:
            fastavro.schemaless_writer(stream, schema.parsed, value, strict_allow_default=True)
        except _UNWRITABLE as error:
            raise MalformedRecord(f"cannot write this as {schema}: {_reason(error)}") from error
        return stream.getvalue()

    def decode(self, data: bytes, expected: Schema) -> dict[str, Any]:
        """Read the record in `data`, whichever version of `expected` wrote it; anything else is a MalformedRecord."""
        key = (expected, data[:PREFIX_SIZE])
        reading = self._readings.get(key)
        if reading is None:
            reading = self._readings[key] = self._reading(data, expected)
        stream = BytesIO(data)
        stream.seek(PREFIX_SIZE)
        try:
            value = fastavro.schemaless_reader(stream, reading.writer, reading.reader)
        except _UNREADABLE as error:
            raise MalformedRecord(f"these {len(data)} bytes do not read as {expected}: {_reason(error)}") from error
        if stream.tell() != len(data):
            left = len(data) - stream.tell()
            raise MalformedRecord(f"{left} bytes follow the end of this {expected.name}: its schema id or its bytes are wrong")
        return value  # type: ignore[return-value]

    def schema_in(self, data: bytes) -> Schema:
        """Tell which schema these bytes say they were written with, where a topic carries several records."""
        return self._ids.schema_of(framed_id(data))

    def _reading(self, data: bytes, expected: Schema) -> _Reading:
        writer = self.schema_in(data)
        if writer.full_name != expected.full_name:
            raise MalformedRecord(f"expected {expected.full_name} and found {writer.full_name}: it was written to the wrong topic")
        same = writer.fingerprint == expected.fingerprint
        return _Reading(writer.parsed, None if same else expected.parsed)


def prefix(schema_id: int) -> bytes:
    """Make the five bytes before every value."""
    return bytes([MAGIC]) + schema_id.to_bytes(PREFIX_SIZE - 1, "big")


def framed_id(data: bytes) -> int:
    """Read the schema id in the frame."""
    if not data or data[0] != MAGIC:
        raise MalformedRecord(f"not framed Avro: that begins with a zero byte and a 4-byte schema id, and this with {data[:PREFIX_SIZE]!r}")
    if len(data) < PREFIX_SIZE:
        raise MalformedRecord(f"truncated: {len(data)} bytes do not hold a schema id")
    return int.from_bytes(data[1:PREFIX_SIZE], "big")


def _only_id(ids: Ids, schema: Schema, topics: Iterable[str]) -> int:
    numbers = {topic: ids.id_of(schema, topic) for topic in topics}
    if len(set(numbers.values())) != 1:
        found = numbers or "none"
        raise ConfigurationError(f"{schema} must have one id over all its topics, and has {found}: use one registry context for all")
    return next(iter(numbers.values()))


def _reason(error: BaseException) -> str:
    return str(error) or "they end too early"


_current = Codec(BuiltInIds(), {schema: [schema.name] for schema in BUILT_IN})


def use(codec: Codec) -> None:
    """Make this process read and write through another codec: once, at its start, where a schema registry is set."""
    global _current  # noqa: PLW0603 -- a process speaks to one registry, and pure rules encode without being handed it
    _current = codec


def encode(schema: Schema, value: Mapping[str, Any]) -> bytes:
    """`Codec.encode` of this process's codec."""
    return _current.encode(schema, value)


def decode(data: bytes, expected: Schema) -> dict[str, Any]:
    """`Codec.decode` of this process's codec."""
    return _current.decode(data, expected)


def schema_in(data: bytes) -> Schema:
    """`Codec.schema_in` of this process's codec."""
    return _current.schema_in(data)
