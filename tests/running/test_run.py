"""`hookline run` as a person starts it: a ready line, a page, a record that waits and comes back, a killed worker, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streams.ladder.handler import DUE, RETURN
from topology.broker import Broker
from topology.ladder import RUNGS
from topology.topics import DELIVERIES

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from streams.cli import main; main()"]


class Running:
    """A started `hookline run` and what it has said so far."""

    def __init__(self, broker: Broker, prefix: str, folder: Path, *options: str, **others: str) -> None:
        """Start it; `others` are settings beside the usual ones."""
        self.output = folder / "output.txt"
        self.folder = folder
        environment = {
            **os.environ,
            "HOOKLINE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "HOOKLINE_TOPIC_PREFIX": prefix,
            "HOOKLINE_STATE_DIR": str(folder / "state"),
            "HOOKLINE_HTTP_PORT": "0",
            "HOOKLINE_PARTITIONS": "2",
            "HOOKLINE_SECRET_KEYS": "k1:" + b64encode(bytes(32)).decode(),
            **others,
            "PYTHONPATH": str(ROOT),
        }
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*COMMAND, "run", *options], env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT
            )

    def wait_for(self, text: str, timeout_s: float = 90) -> str:
        deadline_s = time.monotonic() + timeout_s
        while text not in self.output.read_text():
            assert self.process.poll() is None and time.monotonic() < deadline_s, f"never said {text!r}:\n{self.output.read_text()}"
            time.sleep(0.05)
        return self.output.read_text()

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture
def running(broker: Broker, prefix: str, tmp_path: Path) -> Iterator[Running]:
    started = Running(broker, prefix, tmp_path, "--apply-topology", "--workers", "2")
    yield started
    if started.process.poll() is None:
        started.stop()


def test_a_record_on_a_rung_comes_back_though_a_worker_is_killed_and_ctrl_c_stops_all(
    running: Running, broker: Broker, prefix: str
) -> None:
    said = running.wait_for("Hookline is ready")
    address = next(line.split()[-1] for line in said.splitlines() if line.strip().startswith("page"))
    page = urllib.request.urlopen(address, timeout=10).read().decode()
    readiness = json.load(urllib.request.urlopen(address + "ready", timeout=10))
    assert "retry-5s" in page and "At work." in page
    assert readiness["ready"] is True

    now_ms = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    headers: list[Any] = [(DUE, str(now_ms + 500).encode()), (RETURN, DELIVERIES.name.encode())]
    for partition in range(2):
        producer.produce(prefix + RUNGS[0].topic.name, b"value", b"key", partition, headers=headers)
    producer.flush(10)
    worker = int((running.folder / "state" / "worker-1" / "pid").read_text())
    os.kill(worker, signal.SIGKILL)

    back = read_two(broker, prefix + DELIVERIES.name)
    assert [(m.key(), m.value(), sorted(m.headers())) for m in back] == [(b"key", b"value", sorted(headers))] * 2
    assert all(m.timestamp()[1] >= now_ms + 500 for m in back)
    running.wait_for("worker.died")
    assert running.stop() == 0
    assert "stopped" in running.output.read_text()
    assert not Path(f"/proc/{worker}").exists()


def read_two(broker: Broker, topic: str) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    found: list[Any] = []
    deadline_s = time.monotonic() + 60
    while len(found) < 2 and time.monotonic() < deadline_s:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message)
    consumer.close()
    return found


def test_a_configured_cluster_without_its_topics_is_told_apart_and_left_alone(broker: Broker, prefix: str, tmp_path: Path) -> None:
    started = Running(broker, prefix, tmp_path)

    assert started.process.wait(60) == 1
    assert "hookline topology apply" in started.output.read_text()


def test_a_bad_key_for_secrets_is_told_once_before_any_worker_is_started(broker: Broker, prefix: str, tmp_path: Path) -> None:
    short = Running(broker, prefix, tmp_path, "--apply-topology", HOOKLINE_SECRET_KEYS="k1:dG9vIHNob3J0")

    assert short.process.wait(60) == 1
    assert "HOOKLINE_SECRET_KEYS" in short.output.read_text()
    assert "starting 1 worker" not in short.output.read_text()


@pytest.mark.parametrize(("role", "reason"), [("nobody", "there is no role 'nobody'"), ("replay", "has no agent in this version")])
def test_a_role_that_cannot_run_is_refused_by_name(role: str, reason: str, broker: Broker, prefix: str, tmp_path: Path) -> None:
    started = Running(broker, prefix, tmp_path, "--role", role)

    assert started.process.wait(60) == 1
    assert reason in started.output.read_text()
