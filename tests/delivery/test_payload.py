"""Payload: data goes out as it came in, versions build on each other, and what cannot be written says why."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.delivery import payload
from streams.delivery.payload import LATEST, VERSIONS, SerialisationFailed, body_of, register, unchanged
from streams.errors import ConfigurationError

TIME_MS = 1_700_000_000_123


def body(data: bytes = b"{}", version: str = "2024-01-01", sequence: int | None = None) -> bytes:
    return body_of("evt_1", "payin.success", TIME_MS, data, version, sequence)


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three versions: as produced, with the amount also in words of money, and one that changes nothing."""
    monkeypatch.setattr(payload, "VERSIONS", {})
    register("2024-01-01")(unchanged)

    @register("2025-06-01")
    def amounts_in_decimals(event_type: str, data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "amount_decimal": f"{data['amount'] / 100:.2f}", "of": event_type}

    register("2025-07-01")(unchanged)

    @register("2026-01-01")
    def without_minor_units(event_type: str, data: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in data.items() if name != "amount"}

    yield


def test_a_body_is_exactly_these_bytes() -> None:
    assert body(b'{"amount": 1000}') == (
        b'{"id":"evt_1","type":"payin.success","timestamp":"2023-11-14T22:13:20.123Z","version":"2024-01-01","data":{"amount": 1000}}'
    )


@pytest.mark.parametrize("sequence", [0, 7])
def test_an_ordered_subscriptions_body_has_its_sequence(sequence: int) -> None:
    assert json.loads(body(sequence=sequence))["sequence"] == sequence
    assert "sequence" not in json.loads(body())


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1.10, "b":100000000000000000000000000000001}',
        b'{"z":1,"a":2,"a":3}',
        b' {"a":"\\u00e9"} ',
        '{"a":"é"}'.encode(),
        b"[1, 2]",
        b"null",
    ],
)
def test_data_is_kept_byte_for_byte(data: bytes) -> None:
    assert b'"data":' + data + b"}" in body(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a":1}x',
        b'{},"id":"evt_2"',
        b'{}}, {"a":{}',
        b'{"a":NaN}',
        b'{"a":"\xff"}',
        b'{"\xff":1}',
        b"\xef\xbb\xbf{}",
        b'{"a":"\n"}',
        b"[" * 5_000,
    ],
)
@pytest.mark.parametrize("version", ["2024-01-01", "2025-06-01"])
@pytest.mark.usefixtures("versions")
def test_data_that_is_not_whole_json_in_utf8_is_refused(data: bytes, version: str) -> None:
    with pytest.raises(SerialisationFailed, match="event evt_1: its data is not JSON"):
        body(data, version)


@given(st.binary())
def test_no_data_can_break_out_of_its_field(data: bytes) -> None:
    try:
        written = body(data)
    except SerialisationFailed:
        return

    assert list(json.loads(written)) == ["id", "type", "timestamp", "version", "data"]
    assert json.loads(written)["id"] == "evt_1"


def test_the_shipped_version_sends_data_as_produced_and_is_the_latest() -> None:
    assert VERSIONS == {"2024-01-01": ()}
    assert LATEST == "2024-01-01"


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize(
    ("version", "data"),
    [
        ("2024-01-01", {"amount": 1050}),
        ("2025-06-01", {"amount": 1050, "amount_decimal": "10.50", "of": "payin.success"}),
        ("2025-07-01", {"amount": 1050, "amount_decimal": "10.50", "of": "payin.success"}),
        ("2026-01-01", {"amount_decimal": "10.50", "of": "payin.success"}),
    ],
)
def test_each_version_builds_on_the_one_before_it(version: str, data: dict[str, Any]) -> None:
    written = json.loads(body(b'{"amount":1050}', version))

    assert written["data"] == data
    assert written["version"] == version


def test_an_unknown_version_is_refused_and_says_which_there_are() -> None:
    with pytest.raises(SerialisationFailed, match="event evt_1: there is no payload version '2031-01-01': choose from 2024-01-01"):
        body(version="2031-01-01")


@pytest.mark.usefixtures("versions")
def test_a_transformation_that_fails_says_which_and_why() -> None:
    with pytest.raises(
        SerialisationFailed, match=r"event evt_1 of type payin.success cannot be turned into version 2026-01-01: KeyError: 'amount'"
    ):
        body(b'{"currency":"PKR"}', "2026-01-01")


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize("result", [None, [1], {"a": object()}, {"a": 2**70}, {"a": "\ud800"}])
def test_a_transformation_must_give_an_object_that_json_can_write(result: Any) -> None:
    register("2027-01-01")(lambda event_type, data: result)

    with pytest.raises(SerialisationFailed, match="cannot be turned into version 2027-01-01"):
        body(b'{"amount":1}', "2027-01-01")


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize("version", ["2026-01-01", "2025-12-31"])
def test_a_version_is_only_added_at_the_end(version: str) -> None:
    with pytest.raises(ConfigurationError, match="not later than 2026-01-01"):
        register(version)


@pytest.mark.parametrize("version", ["v2", "2027-13-01", "2027-02-30", "20270101", "2027-W01-1", ""])
def test_a_version_is_named_by_a_date(version: str) -> None:
    with pytest.raises(ConfigurationError, match="not a date"):
        register(version)


@pytest.mark.parametrize(("event_id", "time_ms"), [("a\ud800", TIME_MS), ("evt_1", 10**18)])
def test_an_id_or_a_time_that_json_cannot_write_is_refused(event_id: str, time_ms: int) -> None:
    with pytest.raises(SerialisationFailed, match="cannot be written as JSON"):
        body_of(event_id, "payin.success", time_ms, b"{}", "2024-01-01", None)
