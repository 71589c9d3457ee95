"""The codec: what goes in comes out, older bytes are still read, and bad bytes say what is wrong with them."""

import json
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas import BUILT_IN, DELIVERY, EVENT, PAYOUT_COMMAND, BuiltInIds, Codec, Schema, decode, encode, schema_in
from schemas.catalogue import Catalogue
from schemas.codec import prefix
from schemas.writing import writer_of
from streams.errors import ConfigurationError, MalformedRecord

EVOLVED = Catalogue.load(Path(__file__).parent / "evolved")
REFUND_1, REFUND_2 = EVOLVED.versions("refund")

AN_EVENT = {
    "id": "evt_1",
    "type": "payin.success",
    "source": "/payins",
    "merchant": "m-1",
    "resource": None,
    "time_ms": 1_700_000_000_000,
    "data": b'{"amount": 1000}',
    "data_content_type": "application/json",
    "traceparent": None,
}

PRIMITIVES: Mapping[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}


def values(node: Any, names: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Any value that a schema allows."""
    if isinstance(node, list):
        return st.one_of([values(branch, names) for branch in node])
    if isinstance(node, str):
        return PRIMITIVES[node] if node in PRIMITIVES else values(names[node], names)
    match node["type"]:
        case "record":
            names[node["name"]] = node
            return st.fixed_dictionaries({part["name"]: values(part["type"], names) for part in node["fields"]})
        case "enum":
            names[node["name"]] = node
            return st.sampled_from(node["symbols"])
        case "array":
            return st.lists(values(node["items"], names), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=5), values(node["values"], names), max_size=3)
    return values(node["type"], names)


VALUES = {schema: values(json.loads(schema.text), {}) for schema in BUILT_IN}


def evolved_codec() -> Codec:
    return Codec(BuiltInIds(EVOLVED), {REFUND_1: ["refunds"], REFUND_2: ["refunds"]})


@pytest.mark.parametrize("schema", list(BUILT_IN), ids=str)
def test_what_goes_in_comes_out(schema: Schema) -> None:
    @settings(max_examples=30, deadline=None)
    @given(VALUES[schema])
    def holds(value: dict[str, Any]) -> None:
        assert decode(encode(schema, value), schema) == value

    holds()


@pytest.mark.parametrize("schema", list(BUILT_IN), ids=str)
def test_the_quick_writer_writes_what_fastavro_writes(schema: Schema) -> None:
    write = writer_of(schema.parsed)
    assert write is not None

    @settings(max_examples=50, deadline=None)
    @given(VALUES[schema])
    def holds(value: dict[str, Any]) -> None:
        quick, slow = bytearray(), BytesIO()
        write(quick, value)
        fastavro.schemaless_writer(slow, schema.parsed, value, strict=True)
        assert bytes(quick) == slow.getvalue()

    holds()


@pytest.mark.parametrize("schema", ["float", ["null", "string", "long"], {"type": "fixed", "name": "hash", "size": 4}])
def test_what_the_quick_writer_does_not_know_is_left_to_fastavro(schema: Any) -> None:
    assert writer_of(fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "f", "type": schema}]})) is None


@given(st.integers(-(2**63), 2**63 - 1))
@example(2**34 - 1)
@example(2**34)
@example(2**41 - 1)
@example(2**41)
def test_every_number_is_written_as_fastavro_writes_it(number: int) -> None:
    quick, slow = bytearray(), BytesIO()
    long_writer = writer_of("long")
    assert long_writer is not None
    long_writer(quick, number)
    fastavro.schemaless_writer(slow, fastavro.parse_schema("long"), number)
    assert bytes(quick) == slow.getvalue()


def test_a_frame_is_a_zero_byte_and_the_big_endian_id() -> None:
    assert encode(EVENT, AN_EVENT)[:5] == b"\x00" + (2_000_000_001).to_bytes(4, "big")


def test_fields_with_defaults_may_be_left_out() -> None:
    given = {key: value for key, value in AN_EVENT.items() if key not in ("resource", "data_content_type", "traceparent")}
    assert decode(encode(EVENT, given), EVENT) == AN_EVENT


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tpye": "typo"}, "more fields than the schema specifies: tpye"),
        ({"time_ms": 2**63}, "too large"),
        ({"time_ms": "soon"}, "integer is required on field time_ms"),
        ({"id": None}, "must be string on field id"),
        ({"resource": 7}, "do not match"),
        ({"id": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_a_value_that_the_schema_does_not_allow_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(MalformedRecord, match=f"cannot write this as event version 1: .*{reason}"):
        encode(EVENT, {**AN_EVENT, **change})


def test_a_missing_field_is_refused_by_name() -> None:
    with pytest.raises(MalformedRecord, match="id"):
        encode(EVENT, {key: value for key, value in AN_EVENT.items() if key != "id"})


GOOD = encode(EVENT, AN_EVENT)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not framed Avro"),
        (b'{"id": 1}', "not framed Avro"),
        (b"\x01" + GOOD[1:], "not framed Avro"),
        (GOOD[:3], "truncated: 3 bytes"),
        (GOOD[:5], "do not read as event"),
        (GOOD[:-1], "do not read as event"),
        (GOOD + b"!", "1 bytes follow the end of this event"),
        (b"\x00\x00\x00\x00\x07" + GOOD[5:], "schema id 7 is not a built-in one.*HOOKLINE_SCHEMA_REGISTRY_URL"),
        (b"\x00\xff\xff\xff\xff" + GOOD[5:], "schema id 4294967295"),
        (prefix(2_000_000_003) + GOOD[5:], r"expected hookline\.Event and found hookline\.Delivery"),
    ],
)
def test_bad_bytes_say_what_is_wrong(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        decode(data, EVENT)


@given(st.binary(max_size=200))
@example(b"\xff" * 50)
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    for schema in (EVENT, DELIVERY, PAYOUT_COMMAND):
        for framed in (data, prefix(BuiltInIds().id_of(schema, "")) + data):
            with suppress(MalformedRecord):
                assert isinstance(decode(framed, schema), dict)


@pytest.mark.parametrize("schema", list(BUILT_IN), ids=str)
def test_damaged_bytes_are_read_or_refused_and_nothing_else(schema: Schema) -> None:
    @settings(max_examples=30, deadline=None)
    @given(VALUES[schema], st.data())
    def holds(value: dict[str, Any], data: st.DataObject) -> None:
        whole = bytearray(encode(schema, value))
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        with suppress(MalformedRecord):
            assert isinstance(decode(bytes(whole), schema), dict)

    holds()


def test_old_bytes_still_read_with_the_new_schema() -> None:
    codec = evolved_codec()
    old = codec.encode(REFUND_1, {"id": "r1", "amount_minor": 5, "note": "late", "state": "OPEN"})
    assert codec.decode(old, REFUND_2) == {"id": "r1", "amount_minor": 5, "currency": None, "state": "OPEN"}


def test_new_bytes_still_read_with_the_old_schema() -> None:
    codec = evolved_codec()
    new = codec.encode(REFUND_2, {"id": "r1", "amount_minor": 5, "currency": "PKR", "state": "PAID"})
    assert codec.decode(new, REFUND_1) == {"id": "r1", "amount_minor": 5, "note": "", "state": "UNKNOWN"}


def test_damaged_old_bytes_are_refused() -> None:
    codec = evolved_codec()
    old = codec.encode(REFUND_1, {"id": "r1", "amount_minor": 5, "note": "late", "state": "OPEN"})
    with pytest.raises(MalformedRecord):
        codec.decode(old[:-3], REFUND_2)
    with pytest.raises(MalformedRecord, match="follow the end"):
        codec.decode(old + b"\x00", REFUND_2)


def test_bytes_say_which_record_they_are() -> None:
    assert schema_in(GOOD) is EVENT


def test_a_schema_whose_topics_were_not_named_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name the topics"):
        Codec(BuiltInIds(), {}).encode(EVENT, AN_EVENT)


def test_a_schema_with_two_ids_is_refused() -> None:
    class TwoIds(BuiltInIds):
        def id_of(self, schema: Schema, topic: str) -> int:
            return len(topic)

    with pytest.raises(ConfigurationError, match="one id over all its topics"):
        Codec(TwoIds(), {EVENT: ["a", "bb"]})
