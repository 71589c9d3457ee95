"""`hookline run` as a person starts it: a ready line, a page, a record that waits and comes back, a killed worker, Ctrl-C."""

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streams.ladder.handler import DUE, RETURN
from tests.hookline_run import HooklineRun
from topology.broker import Broker
from topology.ladder import RUNGS
from topology.topics import DELIVERIES

pytestmark = pytest.mark.kafka


@pytest.fixture
def running(broker: Broker, prefix: str, tmp_path: Path) -> Iterator[HooklineRun]:
    started = HooklineRun(broker.bootstrap_servers, prefix, tmp_path, "--apply-topology", "--workers", "2")
    yield started
    if started.process.poll() is None:
        started.stop()


def test_a_record_on_a_rung_comes_back_though_a_worker_is_killed_and_ctrl_c_stops_all(
    running: HooklineRun, broker: Broker, prefix: str
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
    worker = running.pid(1)
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
    started = HooklineRun(broker.bootstrap_servers, prefix, tmp_path)

    assert started.process.wait(60) == 1
    assert "hookline topology apply" in started.output.read_text()


def test_a_bad_key_for_secrets_is_told_once_before_any_worker_is_started(broker: Broker, prefix: str, tmp_path: Path) -> None:
    short = HooklineRun(broker.bootstrap_servers, prefix, tmp_path, "--apply-topology", HOOKLINE_SECRET_KEYS="k1:dG9vIHNob3J0")

    assert short.process.wait(60) == 1
    assert "HOOKLINE_SECRET_KEYS" in short.output.read_text()
    assert "starting 1 worker" not in short.output.read_text()


@pytest.mark.parametrize(("role", "reason"), [("nobody", "there is no role 'nobody'"), ("merchant-topics", "has no agent in this version")])
def test_a_role_that_cannot_run_is_refused_by_name(role: str, reason: str, broker: Broker, prefix: str, tmp_path: Path) -> None:
    started = HooklineRun(broker.bootstrap_servers, prefix, tmp_path, "--role", role)

    assert started.process.wait(60) == 1
    assert reason in started.output.read_text()
