"""The registry: confluent's client against a registry's REST protocol on loopback, asked once and no more."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from schemas import BUILT_IN, DELIVERY, EVENT, Codec, encode
from schemas.catalogue import Catalogue
from schemas.codec import prefix
from schemas.ids import BuiltInIds
from schemas.registry import UNKNOWN_MAX, UNKNOWN_S, RegistryIds, codec_for, ids_from
from streams.errors import ConfigurationError, MalformedRecord

EVOLVED = Catalogue.load(Path(__file__).parent / "evolved")

AN_EVENT = {"id": "evt_1", "type": "payin.success", "source": "/payins", "merchant": "m-1", "time_ms": 0, "data": b"{}"}


class Registry(ThreadingHTTPServer):
    """The two calls of a schema registry that matter here, and a count of how often each was made."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.failure: tuple[int, dict[str, Any]] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        number = next((known for known, kept in self.schemas.items() if kept["schema"] == schema["schema"]), len(self.schemas) + 1)
        self.schemas[number] = schema
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number


class Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        parts = self.path.partition("?")[0].split("/")
        assert parts[1] == "subjects" and parts[3] == "versions", self.path
        self.server.asked.append(f"POST {parts[2]}")
        self.answer(200, {"id": self.server.register(parts[2], {"schemaType": "AVRO", **body})})

    def do_GET(self) -> None:
        number = int(self.path.partition("?")[0].removeprefix("/schemas/ids/"))
        self.server.asked.append(f"GET {number}")
        found = self.server.schemas.get(number)
        self.answer(200, found) if found else self.answer(404, {"error_code": 40403, "message": "Schema not found"})

    def answer(self, status: int, body: dict[str, Any]) -> None:
        status, body = self.server.failure or (status, body)
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the name is http.server's
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_schema_is_registered_under_each_of_its_topics_once(registry: Registry) -> None:
    codec = codec_for(registry.url, {EVENT: ["events", "events-copy"], DELIVERY: ["deliveries"]})
    assert registry.subjects == {"events-value": [1], "events-copy-value": [1], "deliveries-value": [2]}
    asked = len(registry.asked)
    for _ in range(100):
        data = codec.encode(EVENT, AN_EVENT)
        assert codec.decode(data, EVENT)["id"] == "evt_1"
    assert data[:5] == prefix(1)
    assert len(registry.asked) == asked, "encoding and decoding ask nothing"


def test_another_workers_bytes_are_looked_up_once(registry: Registry) -> None:
    data = codec_for(registry.url, {EVENT: ["events"]}).encode(EVENT, AN_EVENT)
    reader = Codec(RegistryIds(registry.url), {})
    for _ in range(10):
        assert reader.decode(data, EVENT)["merchant"] == "m-1"
    assert registry.asked.count("GET 1") == 1
    assert reader.schema_in(data) is EVENT, "what the registry holds is known to be ours"


def test_an_id_is_asked_for_once_for_each_topic(registry: Registry) -> None:
    ids = RegistryIds(registry.url)
    assert {ids.id_of(EVENT, "events") for _ in range(5)} == {1}
    assert registry.asked == ["POST events-value"]


def test_bytes_of_another_version_are_resolved(registry: Registry) -> None:
    old, new = EVOLVED.versions("refund")
    data = Codec(RegistryIds(registry.url, EVOLVED), {old: ["refunds"]}).encode(old, {"id": "r", "amount_minor": 1, "state": "OPEN"})
    reader = Codec(RegistryIds(registry.url, EVOLVED), {new: ["refunds"]})
    assert reader.decode(data, new) == {"id": "r", "amount_minor": 1, "currency": None, "state": "OPEN"}


def test_a_producers_own_version_that_we_do_not_hold_is_resolved(registry: Registry) -> None:
    theirs = json.loads(EVENT.text)
    theirs["fields"].append({"name": "extra", "type": "string", "default": ""})
    number = registry.register("events-value", {"schema": json.dumps(theirs), "schemaType": "AVRO"})
    data = prefix(number) + encode(EVENT, AN_EVENT)[5:] + b"\x02x"
    ids = RegistryIds(registry.url)
    assert Codec(ids, {}).decode(data, EVENT)["id"] == "evt_1"
    assert ids.schema_of(number) is ids.schema_of(number), "it is parsed once"


def test_bytes_written_without_a_registry_are_still_read_with_one(registry: Registry) -> None:
    assert Codec(RegistryIds(registry.url), {}).decode(encode(EVENT, AN_EVENT), EVENT)["id"] == "evt_1"
    assert registry.asked == []


def test_an_unknown_id_is_asked_for_once_and_again_after_a_while(registry: Registry) -> None:
    now = [0.0]
    ids = RegistryIds(registry.url, clock=lambda: now[0])
    for _ in range(5):
        with pytest.raises(MalformedRecord, match="schema id 9 is unknown to the schema registry"):
            ids.schema_of(9)
    assert registry.asked == ["GET 9"]
    now[0] = UNKNOWN_S
    with pytest.raises(MalformedRecord):
        ids.schema_of(9)
    assert registry.asked == ["GET 9", "GET 9"]


def test_the_memory_of_unknown_ids_is_bounded(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemas.registry.UNKNOWN_MAX", 3)
    ids = RegistryIds(registry.url)
    for number in (1, 2, 3, 4, 4, 1):
        with pytest.raises(MalformedRecord):
            ids.schema_of(number)
    assert registry.asked == ["GET 1", "GET 2", "GET 3", "GET 4", "GET 1"]
    assert len(ids._unknown) == 3 < UNKNOWN_MAX


@pytest.mark.parametrize(
    "kept",
    [
        {"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"},
        {"schema": '"string"', "schemaType": "AVRO"},
        {"schema": "not a schema", "schemaType": "AVRO"},
    ],
)
def test_an_id_of_something_else_is_malformed_and_asked_for_once(registry: Registry, kept: dict[str, Any]) -> None:
    number = registry.register("other-value", kept)
    ids = RegistryIds(registry.url)
    for _ in range(2):
        with pytest.raises(MalformedRecord, match=f"schema id {number}"):
            ids.schema_of(number)
    assert registry.asked == [f"GET {number}"]


def test_a_registry_that_is_down_stops_the_worker_and_blames_no_record() -> None:
    ids = RegistryIds("http://user:hidden@127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="gives no answer") as caught:
        ids.schema_of(1)
    assert "hidden" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="gives no answer"):
        ids.id_of(EVENT, "events")


def test_a_registry_that_fails_is_asked_again(registry: Registry) -> None:
    ids = RegistryIds(registry.url)
    number = RegistryIds(registry.url).id_of(EVENT, "events")
    registry.failure = (500, {"error_code": 50001, "message": "backend store"})
    with pytest.raises(ConfigurationError, match="backend store"):
        ids.schema_of(number)
    registry.failure = None
    assert ids.schema_of(number) is EVENT


def test_a_refused_schema_says_which_subject_and_why(registry: Registry) -> None:
    registry.failure = (409, {"error_code": 409, "message": "incompatible with an earlier schema"})
    with pytest.raises(ConfigurationError, match="refused event version 1 for subject events-value: incompatible with an earlier schema"):
        codec_for(registry.url, {EVENT: ["events"]})


def test_without_a_registry_the_built_in_ids_are_used() -> None:
    ids = ids_from(None)
    assert isinstance(ids, BuiltInIds)
    assert all(ids.schema_of(ids.id_of(schema, "any")) is schema for schema in BUILT_IN)
