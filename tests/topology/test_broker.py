"""The local broker as processes: started once, stopped for good, and the same again after a kill."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from typer.testing import CliRunner

from topology import broker
from topology.cli import broker_app

pytestmark = pytest.mark.kafka

ASK = """
import sys
import time
from pathlib import Path
from topology.broker import ensure
print(ensure(Path(sys.argv[1]), port=0).started)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "broker"
    broker.stop(tmp_path / "broker")


def make_topic(servers: str, copies: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("kept", 1, copies)])["kept"].result()


def write(servers: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    producer.produce("kept", value)
    assert producer.flush(60) == 0


def read(servers: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition("kept", 0, 0)])
    values = [message.value() for message in consumer.consume(count, timeout=60)]
    consumer.close()
    return values


def kill(folder: Path, node: broker.Node) -> None:
    psutil.Process(node.pid).kill()
    while (running := broker.status(folder)) and node in running.nodes:
        time.sleep(0.01)


def test_two_processes_that_ask_at_once_start_one_broker_and_stop_ends_it(folder: Path) -> None:
    askers = [subprocess.Popen([sys.executable, "-c", ASK, folder], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = sorted(asker.communicate()[0].strip() for asker in askers)
    assert answers == ["False", "True"]

    running = broker.status(folder)
    assert running
    assert "running" in CliRunner().invoke(broker_app, ["status", "--folder", str(folder)]).output
    again = CliRunner().invoke(broker_app, ["start", "--folder", str(folder)])
    assert f"was running already: {running.bootstrap_servers}" in again.output

    assert broker.stop(folder) == broker.Stopped(ended=(1,), killed=())
    assert not any(psutil.pid_exists(node.pid) and psutil.Process(node.pid).status() != psutil.STATUS_ZOMBIE for node in running.nodes)
    assert broker.status(folder) is None
    assert CliRunner().invoke(broker_app, ["status", "--folder", str(folder)]).exit_code == 1
    assert "no broker was running" in CliRunner().invoke(broker_app, ["stop", "--folder", str(folder)]).output


def test_a_killed_broker_comes_back_at_its_port_with_its_records(folder: Path) -> None:
    steps: list[str] = []
    before = broker.ensure(folder, port=0, progress=steps.append)
    assert steps[-2:] == ["formatting storage", "waiting for the broker"]
    make_topic(before.bootstrap_servers, copies=1)
    write(before.bootstrap_servers, b"before")
    kill(folder, before.nodes[0])
    restarted = CliRunner().invoke(broker_app, ["start", "--folder", str(folder)])
    assert f"started: {before.bootstrap_servers}" in restarted.output
    assert read(before.bootstrap_servers, 1) == [b"before"]


def test_three_nodes_keep_three_copies_and_one_can_be_lost_and_brought_back(folder: Path) -> None:
    three = broker.ensure(folder, nodes=3, port=0)
    assert [node.id for node in three.nodes] == [1, 2, 3]
    make_topic(three.bootstrap_servers, copies=3)
    write(three.bootstrap_servers, b"with three")
    kill(folder, three.nodes[2])
    write(three.bootstrap_servers, b"with two")
    back = broker.start_node(folder, 3)
    assert back.started
    assert [node.port for node in back.nodes] == [node.port for node in three.nodes]
    assert [node.pid for node in back.nodes[:2]] == [node.pid for node in three.nodes[:2]]
    assert read(three.bootstrap_servers, 2) == [b"with three", b"with two"]
    assert set(broker.stop(folder, timeout_s=30).ended) == {1, 2, 3}
