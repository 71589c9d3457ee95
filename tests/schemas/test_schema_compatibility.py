"""Compatibility: the rules in a table, and Apache's own checker as the second opinion."""

from typing import Any

import avro.compatibility
import avro.schema
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.compatibility import incompatibilities, unreadable

Json = Any


def record(*fields: Json, **more: Json) -> Json:
    return {"type": "record", "name": "R", "namespace": "hookline", "fields": list(fields), **more}


def part(name: str, kind: Json, **more: Json) -> Json:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Json) -> Json:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


ID = part("id", "string")
OPTIONAL = part("note", ["null", "string"], default=None)
GROWING = {"default": "UNKNOWN"}

COMPATIBLE = {
    "nothing changed": (record(ID), record(ID)),
    "a field with a default is new": (record(ID), record(ID, OPTIONAL)),
    "a field with a default is gone": (record(ID, OPTIONAL), record(ID)),
    "fields change places": (record(ID, OPTIONAL), record(OPTIONAL, ID)),
    "a doc is new": (record(ID), record({**ID, "doc": "Unique."})),
    "string and bytes read each other": (record(part("a", "string")), record(part("a", "bytes"))),
    "an enum with a default grows": (
        record(part("e", enum("UNKNOWN", "A", **GROWING))),
        record(part("e", enum("UNKNOWN", "A", "B", **GROWING))),
    ),
    "a record within changes compatibly": (
        record(part("in", {"type": "array", "items": {**record(ID), "name": "S"}})),
        record(part("in", {"type": "array", "items": {**record(ID, OPTIONAL), "name": "S"}})),
    ),
    "a type within itself": (
        record(ID, part("next", ["null", "R"], default=None)),
        record(ID, OPTIONAL, part("next", ["null", "R"], default=None)),
    ),
}

NEW_CANNOT = "the new schema cannot read the old one's bytes: "
OLD_CANNOT = "the old schema cannot read the new one's bytes: "

INCOMPATIBLE = {
    "a required field is new": (record(ID), record(ID, part("a", "long")), [NEW_CANNOT + "/a: it is not in the bytes, and has no default"]),
    "a required field is gone": (
        record(ID, part("a", "long")),
        record(ID),
        [OLD_CANNOT + "/a: it is not in the bytes, and has no default"],
    ),
    "a type is narrowed": (record(part("a", "long")), record(part("a", "int")), [NEW_CANNOT + "/a: long does not read as int"]),
    "a type is widened": (record(part("a", "int")), record(part("a", "long")), [OLD_CANNOT + "/a: long does not read as int"]),
    "a type is another": (
        record(part("a", "string")),
        record(part("a", "long")),
        [NEW_CANNOT + "/a: string does not read as long", OLD_CANNOT + "/a: long does not read as string"],
    ),
    "an enum symbol is gone": (
        record(part("e", enum("A", "B"))),
        record(part("e", enum("A"))),
        [NEW_CANNOT + "/e: the enum has no symbol B, and no default"],
    ),
    "an enum without a default grows": (
        record(part("e", enum("A"))),
        record(part("e", enum("A", "B"))),
        [OLD_CANNOT + "/e: the enum has no symbol B, and no default"],
    ),
    "a nullable field is required": (
        record(part("a", ["null", "long"])),
        record(part("a", "long")),
        [NEW_CANNOT + "/a: null does not read as long"],
    ),
    "a field becomes nullable": (
        record(part("a", "long")),
        record(part("a", ["null", "long"])),
        [OLD_CANNOT + "/a: null does not read as long"],
    ),
    "a union gets a branch": (
        record(part("a", ["null", "long"])),
        record(part("a", ["null", "long", "boolean"])),
        [OLD_CANNOT + "/a: the union has no branch that reads boolean"],
    ),
    "a record is renamed": (
        record(ID),
        {**record(ID), "name": "Q"},
        [
            NEW_CANNOT + "/: hookline.R does not read as hookline.Q, which has no such alias",
            OLD_CANNOT + "/: hookline.Q does not read as hookline.R, which has no such alias",
        ],
    ),
    "a fixed changes its size": (
        record(part("f", {"type": "fixed", "name": "F", "size": 4})),
        record(part("f", {"type": "fixed", "name": "F", "size": 8})),
        [
            NEW_CANNOT + "/f: a fixed of 4 bytes does not read as one of 8",
            OLD_CANNOT + "/f: a fixed of 8 bytes does not read as one of 4",
        ],
    ),
    "a record deep within loses a field": (
        record(part("m", {"type": "map", "values": ["null", {**record(ID, part("a", "long")), "name": "S"}]})),
        record(part("m", {"type": "map", "values": ["null", {**record(ID), "name": "S"}]})),
        [OLD_CANNOT + "/m/values/a: it is not in the bytes, and has no default"],
    ),
}


@pytest.mark.parametrize(("old", "new"), COMPATIBLE.values(), ids=COMPATIBLE.keys())
def test_a_compatible_change_passes(old: Json, new: Json) -> None:
    assert incompatibilities(old, new) == []


@pytest.mark.parametrize(("old", "new", "reasons"), INCOMPATIBLE.values(), ids=INCOMPATIBLE.keys())
def test_an_incompatible_change_says_where_and_why(old: Json, new: Json, reasons: list[str]) -> None:
    assert incompatibilities(old, new) == reasons


def test_a_new_name_with_an_alias_reads_old_bytes() -> None:
    old, new = record(part("a", "long")), record(part("b", "long", aliases=["a"]), name="Q", aliases=["hookline.R"])
    assert unreadable(reader=new, writer=old) == []


FLAT = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "string", "bytes"])
ENUMS = st.sets(st.sampled_from("ABC"), min_size=1).map(lambda symbols: enum(*sorted(symbols)))
LEAVES = FLAT | st.sampled_from(["int", "string"]) | ENUMS


def branches(kinds: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.lists(kinds, min_size=1, max_size=3, unique=True)


TYPES = (
    LEAVES
    | branches(FLAT)
    | LEAVES.map(lambda kind: {"type": "array", "items": kind})
    | branches(FLAT).map(lambda kinds: {"type": "map", "values": kinds})
)
DEFAULTS = {"null": None, "boolean": False, "int": 0, "long": 0, "float": 0.0, "double": 0.0, "string": "", "bytes": ""}


def with_default(kind: Json) -> Json:
    first = kind[0] if isinstance(kind, list) else kind
    return {"default": DEFAULTS[first]} if isinstance(first, str) else {}


@st.composite
def records(draw: st.DrawFn) -> Json:
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True))
    parts = []
    enum_taken = False
    for name in names:
        kind = draw(TYPES)
        has_enum = b"enum" in orjson.dumps(kind)
        if has_enum and enum_taken:
            kind = "E" if isinstance(kind, dict) and kind["type"] == "enum" else "long"
        enum_taken = enum_taken or has_enum
        parts.append(part(name, kind, **(with_default(kind) if kind != "E" and draw(st.booleans()) else {})))
    return record(*parts)


def apache_reads(reader: Json, writer: Json) -> bool:
    parsed_reader, parsed_writer = (avro.schema.parse(orjson.dumps(schema).decode()) for schema in (reader, writer))
    verdict = avro.compatibility.ReaderWriterCompatibilityChecker().get_compatibility(parsed_reader, parsed_writer)  # type: ignore[no-untyped-call]
    return verdict.compatibility is avro.compatibility.SchemaCompatibilityType.compatible


@given(records(), records())
@settings(max_examples=300, deadline=None)
def test_apaches_own_checker_agrees(reader: Json, writer: Json) -> None:
    assert (unreadable(reader=reader, writer=writer) == []) == apache_reads(reader, writer)
