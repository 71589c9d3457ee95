"""Replays on real Kafka: what died is delivered once when its endpoint is mended, though the worker is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import schemas
from schemas.event import Event
from schemas.events import encode_event
from streams.delivery.sealing import Keyring
from streams.delivery.subscription import encoded
from streams.delivery.subscription_changes import NewSecret, Wanted, created, sealed
from streams.log.records import Record
from streams.replay.reader import KafkaReader
from streams.replay.reading import last_offset
from tests import sink
from tests.conftest import SettingsFor
from tests.log.clients import create, read_to_end
from topology import topics
from topology.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
PARTITIONS, EVENTS = 2, 60
KEY = bytes(32)
NAME = "sub_replayed".ljust(26, "0")
PATIENCE_S = 120
COMMAND = [sys.executable, "-c", "from streams.cli import main; main()"]


class Running:
    """One worker with the three roles, and what it said."""

    def __init__(self, broker: Broker, prefix: str, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "HOOKLINE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "HOOKLINE_TOPIC_PREFIX": prefix,
            "HOOKLINE_STATE_DIR": str(folder / "state"),
            "HOOKLINE_PARTITIONS": str(PARTITIONS),
            "HOOKLINE_ALLOW_LOOPBACK": "true",
            "HOOKLINE_SECRET_KEYS": "k1:" + b64encode(KEY).decode(),
            "PYTHONPATH": str(ROOT),
        }
        with (folder / "output.txt").open("wb") as output:
            self.process = subprocess.Popen(
                [*COMMAND, "run", "--role", "deliver,ladder,replay", "--apply-topology"],
                env=self.environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def command(self, *arguments: str) -> "subprocess.Popen[str]":
        """What a person types meanwhile."""
        return subprocess.Popen(
            [*COMMAND, *arguments], env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def said(self) -> str:
        return (self.folder / "output.txt").read_text()

    def kill_worker(self) -> None:
        os.kill(int((self.folder / "state" / "worker-1" / "pid").read_text()), signal.SIGKILL)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)


@pytest.fixture
def running(broker: Broker, prefix: str, tmp_path: Path) -> Iterator[Running]:
    started = Running(broker, prefix, tmp_path)
    yield started
    started.stop()


class Outside:
    """Producers, a person who asks, and who reads what came of it."""

    def __init__(self, broker: Broker, prefix: str, running: Running) -> None:
        self.kafka = {"bootstrap.servers": broker.bootstrap_servers}
        self._producer, self._prefix, self._running = Producer({**self.kafka, "enable.idempotence": True}), prefix, running

    def until(self, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert self._running.process.poll() is None and time.monotonic() < deadline_s, f"it never came to that:\n{self._running.said()}"
            time.sleep(0.2)

    def write(self, topic: topics.Topic, partition: int, key: bytes, value: bytes, headers: Any = ()) -> None:
        self._producer.produce(self._prefix + topic.name, value, key, partition, headers=list(headers))

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def read(self, topic: topics.Topic, schema: Any) -> list[dict[str, Any]]:
        return [schemas.decode(value, schema) for _, value in read_to_end(self.kafka, self._prefix + topic.name, PARTITIONS)]

    def letters(self) -> dict[str, str]:
        return {letter["event_id"]: letter["triage"] for letter in self.read(topics.DLQ, schemas.DEAD_LETTER)}

    def states(self) -> Counter[str]:
        return Counter(
            {status["event_id"]: status["state"] for status in self.read(topics.DELIVERY_STATUS, schemas.DELIVERY_STATUS)}.values()
        )

    def finished(self) -> bool:
        told = [each["progress"]["standing"] for each in self.read(topics.REPLAY_REQUESTS, schemas.REPLAY_REQUEST) if each["progress"]]
        return told.count("FINISHED") == PARTITIONS


def subscription(url: str) -> bytes:
    secret = sealed(NewSecret(id="sec_1", algorithm="hmac-sha256", text="whsec_" + "a" * 32), NAME, Keyring({"k1": KEY}), bytes(12), 0)
    wanted = Wanted(url=url, rate_per_s=1_000.0, burst=1_000, overrides={"delays_ms": [200]})
    return encoded(created(NAME, "m1", wanted, secret, 0, allow_loopback=True, disabled=False))


def posted(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def test_dead_letters_are_replayed_once_though_the_worker_is_killed(running: Running, broker: Broker, prefix: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with sink.started("--journal", str(journal)) as merchant:
        outside = Outside(broker, prefix, running)
        behave(merchant.port, "status/500")
        outside.until(lambda: "Hookline is ready" in running.said())
        outside.write(topics.SUBSCRIPTIONS, 0, NAME.encode(), subscription(f"http://127.0.0.1:{merchant.port}/hook"))
        outside.flush()
        time.sleep(2)  # the table is current within a second
        for number in range(EVENTS):
            data = orjson.dumps({"n": number})
            event = Event(id=f"evt_{number:03}", type="payin.success", source="/core", merchant="m1", time_ms=number, data=data)
            value, headers = encode_event(event)
            outside.write(topics.EVENTS, 1, b"m1", value, headers)
        outside.flush()
        outside.until(lambda: outside.states() == {"DLQ": EVENTS})
        behave(merchant.port, "ok")
        asking = running.command("dlq", "replay-all", "--subscription", NAME, "--rate", "20", "--yes")
        outside.until(lambda: sum(post["code"] == 200 for post in posted(journal)) >= 15)
        running.kill_worker()
        told, _ = asking.communicate(timeout=PATIENCE_S)
        assert asking.returncode == 0, told
        assert outside.finished()
        outside.until(lambda: outside.states() == {"DELIVERED": EVENTS})

        taken = Counter(post["headers"]["webhook-id"] for post in posted(journal) if post["code"] == 200)
        bodies = {(post["headers"]["webhook-id"], post["sha256"]) for post in posted(journal)}
        asked = [each for each in outside.read(topics.DELIVERIES, schemas.DELIVERY) if each["generation"] == -1]
        assert len(taken) == len(bodies) == EVENTS
        assert Counter(each["event_id"] for each in asked) == Counter(dict.fromkeys(taken, 1))
        assert set(outside.letters().values()) == {"REPLAYED"}
        again = sum(taken.values()) - EVENTS
        assert again <= 10, "more were posted twice than were under way when the worker was killed"


def behave(port: int, behaviour: str) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/control/set?path=/hook&behave={behaviour}", timeout=10).read()


async def test_the_reader_finds_what_it_is_asked_for_among_transactions_and_ends(settings_for: SettingsFor, prefix: str) -> None:
    settings = settings_for(prefix)
    kafka = settings.kafka()
    create(AdminClient({**kafka}), prefix, 1, topics.DLQ)
    producer = Producer({**kafka, "transactional.id": prefix})
    producer.init_transactions(30)
    base_ms = time.time_ns() // 1_000_000 + 60_000  # markers have the broker's time, and are found by it too
    for number in range(1_200):
        if number % 100 == 0:
            producer.begin_transaction()
        producer.produce(prefix + topics.DLQ.name, b"v%d" % number, b"even" if number % 2 == 0 else b"odd", timestamp=base_ms + number)
        if number % 100 == 99:
            if number == 299:
                producer.flush(30)
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    reader = KafkaReader(settings, kafka)
    first, end = await reader.bounds(topics.DLQ, 0)

    assert (first, end) == (0, 1_212)
    assert await last_offset(reader, topics.DLQ, 0) == 1_210
    everything: list[Record] = []
    position = 0
    while position < end:
        found = await reader.stretch(topics.DLQ, 0, position, end, 300)
        everything += found.records
        position = found.next_offset
    assert len(everything) == 1_100
    assert {record.timestamp_ms - base_ms for record in everything}.isdisjoint(range(200, 300))
    offsets = [everything[place].offset for place in (0, 5, 6, 1_099)] + [100, 5_000]
    records, up_to = await reader.records(topics.DLQ, 0, sorted(offsets))
    assert [records[offset].value for offset in offsets[:4]] == [everything[place].value for place in (0, 5, 6, 1_099)]
    assert len(records) == 4 and up_to == 5_001
    odd = await reader.stretch(topics.DLQ, 0, 0, end, 10, b"odd")
    assert [record.value for record in odd.records] == [b"v%d" % number for number in range(1, 20, 2)]
    assert await reader.offset_at(topics.DLQ, 0, base_ms + 350) == 353
    assert await reader.offset_at(topics.DLQ, 0, base_ms + 10**9) == end
    await reader.close()
