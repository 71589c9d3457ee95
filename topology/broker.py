"""A local Kafka: started once however many ask, found again, and stopped, one node or three.

    ensure ──► running already? ──yes──────────────────────────────────► Broker(started=False)
                    │ no
                    └──► ports ──► jars, storage ──► processes ──► ready ──► Broker(started=True)

Everything it keeps is in one folder, so that deleting a stopped broker's folder forgets it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams.errors import BrokerUnavailable, ConfigurationError
from topology import broker_files as files
from topology import broker_ports, broker_process
from topology.broker_files import HOST, BrokerRecord, NodeRecord
from topology.broker_jars import Progress, locked

READY_TIMEOUT_S = 60
READY_POLL_S = 0.05
ANSWER_TIMEOUT_S = 2
NODES_ALLOWED = (1, 3)


@dataclass(frozen=True)
class Node:
    """One running process; `kill -9` its pid and `start_node` brings it back."""

    id: int
    pid: int
    port: int
    log: Path


@dataclass(frozen=True)
class Broker:
    """The nodes that run; `started` says whether this call started any of them."""

    bootstrap_servers: str
    nodes: tuple[Node, ...]
    started: bool


@dataclass(frozen=True)
class Stopped:
    """The ids of the nodes that were ended, and of those that did not end when asked and were killed."""

    ended: tuple[int, ...]
    killed: tuple[int, ...]


def quiet(_: str) -> None:
    """Ignore progress that nobody watches."""


def ensure(folder: Path, nodes: int = 1, port: int | None = None, progress: Progress = quiet) -> Broker:
    """Start what does not run of this folder's broker. `port`: None is the last one or 9092, 0 takes free ones."""
    folder = folder.absolute()
    with locked(files.lock_file(folder)):
        before = files.read_record(folder)
        _check_asked(folder, nodes, port, before)
        missing = [node for node in before.nodes if not broker_process.find(folder, node)] if before else []
        if before and not missing:
            return _running(folder, before, started=False)
        if before and len(missing) < nodes:
            return _start(folder, before, missing, progress)
        record = BrokerRecord(before.cluster_id if before else files.new_cluster_id(), broker_ports.choose(nodes, port, before))
        return _start(folder, record, record.nodes, progress)


def start_node(folder: Path, node_id: int, progress: Progress = quiet) -> Broker:
    """Start one node that has ended, at the port it had; the others are left alone."""
    folder = folder.absolute()
    with locked(files.lock_file(folder)):
        record = files.read_record(folder)
        asked = [node for node in record.nodes if node.id == node_id] if record else []
        if not record or not asked:
            raise ConfigurationError(
                f"starting node {node_id}: {folder} has no such node. Start the broker with `hookline broker start` first"
            )
        if broker_process.find(folder, asked[0]):
            return _running(folder, record, started=False)
        return _start(folder, record, asked, progress)


def stop(folder: Path, timeout_s: float = 8) -> Stopped:
    """End every node that runs; one that has not ended by itself in `timeout_s` is killed, which its data survives."""
    folder = folder.absolute()
    if not folder.exists():
        return Stopped((), ())
    with locked(files.lock_file(folder)):
        record = files.read_record(folder)
        running = {node.id for node in record.nodes if broker_process.find(folder, node)} if record else set()
        killed = broker_process.end(folder, record, running, timeout_s) if record else ()
        return Stopped(tuple(sorted(running)), killed)


def status(folder: Path) -> Broker | None:
    """Tell which nodes run now, if any; asks nobody and waits for nothing."""
    folder = folder.absolute()
    record = files.read_record(folder)
    running = _running(folder, record, started=False) if record else None
    return running if running and running.nodes else None


def _check_asked(folder: Path, nodes: int, port: int | None, before: BrokerRecord | None) -> None:
    if nodes not in NODES_ALLOWED:
        raise ConfigurationError(f"starting a local broker of {nodes} nodes: ask for 1 or 3")
    if not before:
        return
    if len(before.nodes) != nodes:
        raise ConfigurationError(
            f"starting a local broker of {nodes} node(s): {folder} holds one of {len(before.nodes)}. "
            f"Ask for --nodes {len(before.nodes)}, name another --folder, or stop that broker and remove its folder"
        )
    if port and port != before.nodes[0].port and any(broker_process.find(folder, node) for node in before.nodes):
        raise ConfigurationError(
            f"starting a local broker at port {port}: the one in {folder} already runs at port {before.nodes[0].port}. "
            "Use that, or stop it first with `hookline broker stop`"
        )


def _start(folder: Path, record: BrokerRecord, missing: Sequence[NodeRecord], progress: Progress) -> Broker:
    """Start the missing nodes; if they do not become ready, none of them is left behind."""
    broker_process.prepare(folder, record, progress)
    launched = {node.id: replace(node, pid=broker_process.launch(folder, node)) for node in missing}
    record = replace(record, nodes=tuple(launched.get(node.id, node) for node in record.nodes))
    files.write_record(folder, record)
    progress("waiting for the broker")
    try:
        _wait_until_ready(folder, record)
    except BaseException:
        broker_process.end(folder, record, launched.keys(), timeout_s=2)
        raise
    return _running(folder, record, started=True)


def _wait_until_ready(folder: Path, record: BrokerRecord) -> None:
    """Return when each node itself answers and names all nodes; say why when one of them ends instead."""
    waiting = list(record.nodes)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while waiting:
        for node in record.nodes:
            if not broker_process.find(folder, node):
                raise BrokerUnavailable(f"starting node {node.id}: it ended. {_last_words(folder, node)}")
        if time.monotonic() > deadline:
            raise BrokerUnavailable(f"starting node {waiting[0].id}: not ready in {READY_TIMEOUT_S} s. {_last_words(folder, waiting[0])}")
        waiting = [node for node in waiting if not _named_by(node) >= {each.id for each in record.nodes}]
        time.sleep(READY_POLL_S if waiting else 0)


def _named_by(node: NodeRecord) -> set[int]:
    """Ask this node for the cluster's nodes, with a client that knows no other: they would still name a node that was just killed."""
    if not broker_ports.is_open(node.port):
        return set()
    try:
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{node.port}", "log_level": 0})
        return set(admin.list_topics(timeout=ANSWER_TIMEOUT_S).brokers)
    except KafkaException:
        return set()


def _last_words(folder: Path, node: NodeRecord) -> str:
    log = files.log_file(folder, node.id)
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    telling = [line for line in lines if "ERROR" in line or "Exception" in line or "Error" in line] or lines
    return f"Its log {log} says: {' | '.join(telling[-3:])[:800] or 'nothing'}"


def _running(folder: Path, record: BrokerRecord, *, started: bool) -> Broker:
    alive = [node for node in record.nodes if broker_process.find(folder, node)]
    nodes = tuple(Node(node.id, node.pid or 0, node.port, files.log_file(folder, node.id)) for node in alive)
    return Broker(_servers(record.nodes), nodes, started)


def _servers(nodes: Sequence[NodeRecord]) -> str:
    return ",".join(f"{HOST}:{node.port}" for node in nodes)
