"""Events: every form that a producer may write is read alike, and what is wrong is said."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import EVENT, Event, decode, decode_event, encode, encode_event
from schemas.instants import MS_MAX, from_rfc3339, to_rfc3339
from streams.errors import MalformedRecord

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TIME_MS = 1_706_693_400_123
DATA = b'{"amount": 1000, "exact": 12345678901234567890123, "rate": 1.10}'

WHOLE = Event(
    id="evt_1",
    type="payin.success",
    source="/payins",
    merchant="m-1",
    time_ms=TIME_MS,
    data=DATA,
    resource="payin_7",
    traceparent=TRACE,
)
KEY = b"m-1"


def plain(**changes: Any) -> bytes:
    return orjson.dumps({"id": "evt_1", "type": "payin.success", "time": "2024-01-31T09:30:00Z", "data": {"a": 1}} | changes)


def structured(**changes: Any) -> bytes:
    return plain(**{"specversion": "1.0", "source": "/payins", **changes})


STRUCTURED = [("content-type", b"application/cloudevents+json; charset=utf-8")]
BINARY: dict[str, bytes] = {
    "ce_specversion": b"1.0",
    "ce_id": b"evt_1",
    "ce_type": b"payin.success",
    "ce_source": b"/payins",
    "ce_time": b"2024-01-31T09:30:00.123Z",
    "ce_subject": b"payin_7",
    "content-type": b"application/json",
    "ce_traceparent": TRACE.encode(),
}


def binary(**changes: bytes | None) -> list[tuple[str, bytes]]:
    return [(name, value) for name, value in {**BINARY, **changes}.items() if value is not None]


# The four forms


def test_our_own_form_comes_back_whole() -> None:
    value, headers = encode_event(WHOLE)
    assert decode_event(value, headers, KEY) == WHOLE
    assert dict(headers) == {
        "ce_specversion": b"1.0",
        "ce_id": b"evt_1",
        "ce_type": b"payin.success",
        "ce_source": b"/payins",
        "ce_time": b"2024-01-31T09:30:00.123Z",
        "ce_subject": b"payin_7",
        "content-type": b"application/avro",
        "traceparent": TRACE.encode(),
    }


def test_our_own_form_needs_no_headers() -> None:
    assert decode_event(encode_event(WHOLE)[0], None, KEY) == WHOLE


def test_binary_mode_with_plain_json_is_the_same_event() -> None:
    assert decode_event(DATA, binary(), KEY) == WHOLE


def test_structured_json_is_the_same_event_with_its_data_byte_for_byte() -> None:
    value = (
        b'{"specversion": "1.0", "id": "evt_1", "type": "payin.success", "source": "/payins", "subject": "payin_7", '
        b'"time": "2024-01-31T14:30:00.123+05:00", "traceparent": "' + TRACE.encode() + b'", "data": ' + DATA + b"}"
    )
    assert decode_event(value, STRUCTURED, KEY) == WHOLE
    assert decode_event(value, None, KEY) == WHOLE, "a specversion says so without the header, too"


def test_plain_json_is_enough() -> None:
    value = b'{"id": "evt_1", "type": "payin.success", "resource": "payin_7", "data": ' + DATA + b"}"
    event = decode_event(value, None, KEY, timestamp_ms=TIME_MS)
    assert event == msgspec.structs.replace(WHOLE, source="json", traceparent=None)


def test_the_records_own_trace_is_taken_where_the_event_has_none() -> None:
    bare = msgspec.structs.replace(WHOLE, traceparent=None)
    trace = [("traceparent", TRACE.encode())]
    assert decode_event(encode_event(bare)[0], trace, KEY).traceparent == TRACE
    assert decode_event(plain(), trace, KEY).traceparent == TRACE
    assert decode_event(plain(), [("traceparent", b"nonsense")], KEY).traceparent is None


def test_data_is_parsed_once_and_kept_beside_its_bytes() -> None:
    assert WHOLE.fields["amount"] == 1000
    assert WHOLE.fields is WHOLE.fields


def test_headers_without_a_value_and_of_others_are_passed_over() -> None:
    assert decode_event(DATA, [*binary(), ("ce_extra", None), ("x", b"\xff")], KEY) == WHOLE


# Other people's CloudEvents


def theirs(data: Any) -> CloudEvent:
    attributes = {
        "id": "evt_1",
        "type": "payin.success",
        "source": "/payins",
        "subject": "payin_7",
        "time": datetime(2024, 1, 31, 9, 30, 0, 123_000, tzinfo=UTC),
        "datacontenttype": "application/json",
        "traceparent": TRACE,
        "partitionkey": "m-1",
    }
    return CloudEvent(attributes=attributes, data=data)


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
@pytest.mark.parametrize("data", [orjson.loads(DATA), DATA], ids=["object", "bytes"])
def test_what_the_cloudevents_package_writes_is_read(write: Any, data: Any) -> None:
    message = write(theirs(data))
    event = decode_event(message.value, list(message.headers.items()), message.key.encode())
    assert msgspec.structs.replace(event, data=DATA) == WHOLE
    assert event.fields == WHOLE.fields


def test_what_we_write_the_cloudevents_package_reads() -> None:
    value, headers = encode_event(WHOLE)
    event = from_binary_event(KafkaMessage(headers=dict(headers), key=KEY, value=value))
    assert (event.get_id(), event.get_type(), event.get_source(), event.get_subject()) == ("evt_1", "payin.success", "/payins", "payin_7")
    assert event.get_time() == datetime(2024, 1, 31, 9, 30, 0, 123_000, tzinfo=UTC)


# What is refused


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (None, None, "has no value"),
        (b"", None, "has no value"),
        (b"nonsense", None, "neither framed Avro nor JSON"),
        (b"[]", None, "Expected `object`"),
        (b"\x00\x01", None, "truncated"),
        (b'{"data": ' + b"[" * 100_000, None, "JSON cannot be read: maximum recursion depth"),
        (plain(id=None), None, "id is missing"),
        (plain(id=""), None, "id is missing"),
        (plain(id=7), None, r"Expected `str \| null`, got `int` - at `\$\.id`"),
        (plain(id="x" * 257), None, "id has 257 characters: at most 256"),
        (plain(id="evil\r\nX-Injected: 1"), None, "visible ASCII"),
        (plain(id="two words"), None, "visible ASCII"),
        (plain(type=None), None, "type is missing"),
        (plain(type="t" * 257), None, "type has 257"),
        (plain(merchant="m-2"), None, "merchant 'm-2' is not its record's key 'm-1'"),
        (plain(resource="r" * 513), None, "resource has 513"),
        (plain(resource="a\nb"), None, "printable"),
        (plain(time="yesterday"), None, "not RFC 3339"),
        (plain(time="2024-01-31T09:30:00"), None, "not RFC 3339"),
        (plain(time="2024-02-31T09:30:00Z"), None, "time cannot be read"),
        (plain(time="1969-12-31T23:59:59Z"), None, "not between 1970 and 9999"),
        (plain(time=None), None, "time is missing"),
        (plain(data=[1]), None, "must be a JSON object, and is list"),
        (plain(data=None), None, "must be a JSON object, and is NoneType"),
        (b'{"id": "1", "type": "t", "time": "2024-01-31T09:30:00Z"}', None, "data is missing"),
        (b'{"id": "1", "type": "t", "time": "2024-01-31T09:30:00Z", "data": {"a": "\xff"}}', None, "not JSON"),
        (plain(data_base64="?"), None, "not base64"),
        (plain(datacontenttype="text/plain"), None, "only JSON is taken"),
        (structured(specversion="0.3"), STRUCTURED, "specversion 0.3 is not taken"),
        (plain(), STRUCTURED, "specversion None is not taken"),
        (structured(source=None), STRUCTURED, "source is missing"),
        (b"{}", [("Content-Type", b"application/cloudevents-batch+json")], "one CloudEvent per record"),
        (b"{}", [("content-type", b"application/cloudevents+avro")], "one CloudEvent per record"),
        (DATA, binary(ce_id=None), "id is missing"),
        (DATA, binary(ce_source=None), "source is missing"),
        (DATA, binary(ce_specversion=None), "specversion None"),
        (DATA, binary(ce_type=b"\xff"), "header ce_type is not UTF-8"),
        (DATA, binary(ce_merchant=b"m-2"), "is not its record's key"),
        (DATA, binary(**{"content-type": b"text/xml"}), "only JSON is taken"),
        (b"[]", binary(), "must be a JSON object"),
        (b"<xml/>", binary(), "data is not JSON"),
    ],
)
def test_bad_input_says_what_is_wrong(value: bytes | None, headers: list[tuple[str, bytes]] | None, reason: str) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        decode_event(value, headers, KEY)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": ""}, "id is missing"),
        ({"merchant": "m-2"}, "not its record's key"),
        ({"time_ms": -1}, "not between"),
        ({"data": b"{"}, "not JSON"),
        ({"data_content_type": "text/plain"}, "only JSON"),
    ],
)
def test_a_bad_event_in_good_avro_is_refused(change: dict[str, Any], reason: str) -> None:
    fields = decode(encode_event(WHOLE)[0], EVENT)
    with pytest.raises(MalformedRecord, match=reason):
        decode_event(encode(EVENT, {**fields, **change}), None, KEY)


@pytest.mark.parametrize(
    ("key", "reason"), [(None, "no key"), (b"", "no key"), (b"\xff", "key is not UTF-8"), (b"m" * 129, "merchant has 129")]
)
def test_a_record_without_a_merchants_key_is_refused(key: bytes | None, reason: str) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        decode_event(plain(), None, key)


def test_a_bad_event_cannot_be_made() -> None:
    with pytest.raises(MalformedRecord, match="traceparent"):
        msgspec.structs.replace(WHOLE, traceparent="nonsense")


NAMES = st.sampled_from(["ce_id", "ce_specversion", "ce_type", "ce_time", "content-type", "traceparent"]) | st.text(max_size=5)
CONTENT = st.sampled_from([b"application/json", b"application/cloudevents+json", b"1.0"]) | st.binary(max_size=10)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda kids: st.lists(kids) | st.dictionaries(st.text(), kids)
)
ENVELOPES = st.dictionaries(st.sampled_from(["id", "type", "source", "time", "data", "specversion", "data_base64"]), JSON).map(orjson.dumps)


@given(st.binary(max_size=100) | ENVELOPES, st.none() | st.lists(st.tuples(NAMES, CONTENT), max_size=4), st.binary(max_size=10))
@settings(max_examples=300, deadline=None)
def test_any_record_is_read_or_refused_and_nothing_else(value: bytes, headers: list[tuple[str, bytes]] | None, key: bytes) -> None:
    with suppress(MalformedRecord):
        assert isinstance(decode_event(value, headers, key), Event)


# Instants


@given(st.integers(0, MS_MAX))
def test_an_instant_comes_back(instant_ms: int) -> None:
    assert from_rfc3339(to_rfc3339(instant_ms)) == instant_ms


@pytest.mark.parametrize(
    ("text", "instant_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.0019z", 1),
        ("1970-01-01 05:00:00+05:00", 0),
        ("2024-01-31T09:30:00.123456789Z", TIME_MS),
    ],
)
def test_rfc_3339_is_read(text: str, instant_ms: int) -> None:
    assert from_rfc3339(text) == instant_ms
