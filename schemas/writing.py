"""Writes records as Avro by functions made once for each schema, twice as fast as fastavro walks it.

Every delivery writes a record with a dozen nullable fields, and fastavro tries out each branch of each union. What a function here
cannot take (a field left to its default, another kind of union, a wrong value) it refuses by any error, and fastavro then writes it or
says what is wrong; so fastavro stays the judge of what is right, and a test holds these functions to its bytes.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

Write = Callable[[bytearray, Any], None]
"""Appends a value's bytes, or raises anything at all."""

SMALL = 1 << 12
"""Numbers below it, most of all lengths, are looked up."""

LONG_MAX = 1 << 63


class NotCompiled(Exception):
    """A schema has a part that only fastavro writes."""


def varint(number: int) -> bytes:
    """Write a number as Avro does: zigzag, and seven bits a byte."""
    if not -LONG_MAX <= number < LONG_MAX:
        raise OverflowError(f"{number} does not fit into 64 bits")
    rest = number << 1 if number >= 0 else ~(number << 1)
    written = bytearray()
    while rest > 127:
        written.append(rest & 127 | 128)
        rest >>= 7
    written.append(rest)
    return bytes(written)


_SMALL = [varint(number) for number in range(SMALL)]
_END = _SMALL[0]


def writer_of(schema: Any) -> Write | None:
    """Make a parsed schema's function; None where a part of it is fastavro's alone."""
    try:
        return _compiled(schema, {})
    except NotCompiled:
        return None


def _compiled(schema: Any, named: dict[str, Write]) -> Write:
    if isinstance(schema, list):
        return _nullable(schema, named)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in ("record", "enum"):
        make = _record if kind == "record" else _enum
        written = named[schema["name"]] = make(schema, named)
        return written
    if kind in ("array", "map"):
        item = _compiled(schema["items" if kind == "array" else "values"], named)
        return _array(item) if kind == "array" else _map(item)
    if kind in _PRIMITIVES and not (isinstance(schema, dict) and "logicalType" in schema):
        return _PRIMITIVES[kind]
    if isinstance(kind, str) and kind in named:
        return named[kind]
    raise NotCompiled(str(schema)[:80])


def _record(schema: Mapping[str, Any], named: dict[str, Write]) -> Write:
    fields = [(field["name"], _compiled(field["type"], named)) for field in schema["fields"]]
    count = len(fields)

    def write(out: bytearray, value: Mapping[str, Any]) -> None:
        if len(value) != count:
            raise KeyError("a field is missing or unknown")
        for name, write_field in fields:
            write_field(out, value[name])

    return write


def _nullable(branches: list[Any], named: dict[str, Write]) -> Write:
    if len(branches) != 2 or "null" not in branches:
        raise NotCompiled("a union of more than null and one other")
    null = branches.index("null")
    is_null, is_other = _SMALL[null], _SMALL[1 - null]
    write_other = _compiled(branches[1 - null], named)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out += is_null
        else:
            out += is_other
            write_other(out, value)

    return write


def _enum(schema: Mapping[str, Any], named: dict[str, Write]) -> Write:
    written = {symbol: varint(index) for index, symbol in enumerate(schema["symbols"])}

    def write(out: bytearray, value: str) -> None:
        out += written[value]

    return write


def _array(write_item: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value:
            out += varint(len(value))
            for item in value:
                write_item(out, item)
        out += _END

    return write


def _map(write_value: Write) -> Write:
    def write(out: bytearray, value: Mapping[str, Any]) -> None:
        if value:
            out += varint(len(value))
            for name, each in value.items():
                _string(out, name)
                write_value(out, each)
        out += _END

    return write


def _string(out: bytearray, value: str) -> None:
    text = value.encode()
    size = len(text)
    out += _SMALL[size] if size < SMALL else varint(size)
    out += text


def _bytes(out: bytearray, value: bytes) -> None:
    if not isinstance(value, bytes):
        raise TypeError("not bytes")
    size = len(value)
    out += _SMALL[size] if size < SMALL else varint(size)
    out += value


def _long(out: bytearray, value: int) -> None:
    if 0 <= value < SMALL:
        out += _SMALL[value]
    elif 1 << 34 <= value < 1 << 41:  # a time of these decades, in milliseconds: six bytes
        rest = value << 1
        out += bytes(
            (rest & 127 | 128, rest >> 7 & 127 | 128, rest >> 14 & 127 | 128, rest >> 21 & 127 | 128, rest >> 28 & 127 | 128, rest >> 35)
        )
    else:
        out += varint(value)


def _boolean(out: bytearray, value: bool) -> None:
    if value is not True and value is not False:
        raise TypeError("not a boolean")
    out.append(value)


def _double(out: bytearray, value: float) -> None:
    out += _DOUBLE(value)


_DOUBLE = struct.Struct("<d").pack
_PRIMITIVES: dict[str, Write] = {
    "string": _string, "bytes": _bytes, "long": _long, "int": _long, "boolean": _boolean, "double": _double,
}  # fmt: skip
