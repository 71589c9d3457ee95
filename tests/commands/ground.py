"""What the tests of commands stand on: topics of their own, the command with settings that name them, and somebody who plays the agent."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

import schemas
from schemas.event import Event
from streams.cli import app
from streams.settings import settings
from tests.log.clients import read_to_end
from topology import cluster_admin
from topology.cluster import Create, Plan, Wanted
from topology.topics import DELIVERY_STATUS, DLQ, EVENTS, REPLAY_REQUESTS, SUBSCRIPTIONS, Topic

PARTITIONS = 2
KEYS = "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
Answers = Callable[[Mapping[str, Any], int], list[dict[str, Any]]]
"""What is told of a request in a partition, one after another."""


class Ground:
    """Topics of a test's own, and the command."""

    def __init__(self, bootstrap_servers: str, prefix: str, folder: Path) -> None:
        self.kafka: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self.prefix = prefix
        self.environment = {
            "HOOKLINE_BOOTSTRAP_SERVERS": bootstrap_servers,
            "HOOKLINE_TOPIC_PREFIX": prefix,
            "HOOKLINE_STATE_DIR": str(folder),
            "HOOKLINE_SECRET_KEYS": KEYS,
            "HOOKLINE_ALLOW_LOOPBACK": "true",
        }
        counts = {EVENTS: PARTITIONS, DELIVERY_STATUS: PARTITIONS, DLQ: PARTITIONS, REPLAY_REQUESTS: PARTITIONS, SUBSCRIPTIONS: 1}
        topics = (Wanted(prefix + topic.name, count, 1, topic.config(1), by_merchant=True) for topic, count in counts.items())
        cluster_admin.apply(AdminClient(self.kafka), Plan(tuple(Create(topic) for topic in topics)), lambda _: None)
        self._producer = Producer(self.kafka)

    def invoke(self, *arguments: str, given: str | bytes | None = None) -> Result:
        """Run it to its end, whatever that is; a refusal is raised, as `main` tells it."""
        return CliRunner().invoke(app, arguments, input=given, catch_exceptions=False)

    def run(self, *arguments: str, given: str | bytes | None = None) -> str:
        """What it says on its way to success."""
        result = self.invoke(*arguments, given=given)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def subscribe(self, merchant: str, *options: str) -> str:
        made = self.json("subscriptions", "create", "--merchant", merchant, "--url", "http://127.0.0.1:1/hook", *options)
        return str(made["id"])

    def write(self, topic: Topic, key: bytes, value: bytes, headers: Any = None, partition: int = 0, timestamp_ms: int = 0) -> None:
        self._producer.produce(self.prefix + topic.name, value, key, partition, headers=headers, timestamp=timestamp_ms)
        assert self._producer.flush(30) == 0

    def write_event(self, event: Event, partition: int = 0) -> None:
        value, headers = schemas.encode_event(event)
        self.write(EVENTS, event.merchant.encode(), value, headers, partition)

    def write_status(self, offset: int = 0, **fields: Any) -> None:
        value = {**STATUS, "origin": {"topic": "events", "partition": 0, "offset": offset}, **fields}
        key = f"{value['source']} {value['event_id']} {value['subscription_id']}".encode()
        self.write(DELIVERY_STATUS, key, schemas.encode(schemas.DELIVERY_STATUS, value))

    def write_letter(self, name: str, partition: int = 0, **fields: Any) -> None:
        value = schemas.encode(schemas.DEAD_LETTER, {**LETTER, "id": name, **fields})
        self.write(DLQ, name.encode(), value, partition=partition, timestamp_ms=fields.get("dead_ms", 0))

    def requests(self) -> list[dict[str, Any]]:
        """What has been asked of the replay agent, in the order of each partition; not what it told."""
        records = read_to_end(self.kafka, self.prefix + REPLAY_REQUESTS.name, PARTITIONS)
        read = [schemas.decode(value, schemas.REPLAY_REQUEST) for _, value in records]
        return [fields for fields in read if fields["action"] != "PROGRESS"]

    def events(self) -> list[dict[str, Any]]:
        return [schemas.decode(value, schemas.EVENT) for _, value in read_to_end(self.kafka, self.prefix + EVENTS.name, PARTITIONS)]

    @contextmanager
    def agent(self, answers: Answers) -> Iterator[None]:
        """Play the replay agent: tell of every request, in its partition, what `answers` says."""
        over = threading.Event()
        thread = threading.Thread(target=self._play, args=(answers, over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(30)

    def _play(self, answers: Answers, over: threading.Event) -> None:
        topic = self.prefix + REPLAY_REQUESTS.name
        consumer = Consumer({**self.kafka, "group.id": topic})
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while not over.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            request, partition = schemas.decode(message.value() or b"", schemas.REPLAY_REQUEST), message.partition() or 0
            if request["action"] != "PROGRESS":
                for part in answers(request, partition):
                    self.tell(request, partition, **part)
        consumer.close()

    def tell(self, request: Mapping[str, Any], partition: int, **part: Any) -> None:
        """Write one partition's progress, as the agent does."""
        value = schemas.encode(schemas.REPLAY_REQUEST, {**request, "action": "PROGRESS", "progress": part})
        self.write(REPLAY_REQUESTS, request["id"].encode(), value, partition=partition)


ATTEMPT: dict[str, Any] = {
    "number": 1, "generation": 0, "at_ms": 1_700_000_000_000, "duration_ms": 12, "code": None, "error": "no answer within 15 s",
    "ambiguous": True, "response": b"",
}  # fmt: skip
STATUS: dict[str, Any] = {
    "event_id": "e1", "event_type": "payin.success", "source": "shop", "merchant": "m1", "event_time_ms": 0, "attempts": [],
    "updated_ms": 1,
}  # fmt: skip
LETTER: dict[str, Any] = {
    "kind": "DELIVERY", "reason": "EXHAUSTED", "detail": "attempt 1 was the last: HTTP 500", "payload": b'{"id":"e1"}', "payload_size": 11,
    "merchant": "m1", "event_id": "e1", "event_type": "payin.success", "source": "shop", "subscription_id": "sub_1", "history": [ATTEMPT],
    "dead_ms": 1_700_000_000_000, "triage": "OPEN",
}  # fmt: skip


def finished(request: Mapping[str, Any], partition: int) -> list[dict[str, Any]]:
    """An agent that finds three in every partition and sends two of them."""
    counts = {"cursor": 5, "end": 5, "looked_at": 5, "matched": 3, "sent": 2, "skipped": 1, "reason": "one had no body"}
    return [{"standing": "RUNNING", "end": 5}, {"standing": "FINISHED", **counts}]


@contextmanager
def settings_of(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process's settings, for as long as a test takes."""
    for name, value in ground.environment.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    yield
    settings.cache_clear()
