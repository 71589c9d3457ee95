"""The files of a local broker: where each is, what its configuration says, and the record of who runs."""

import json
import secrets
from base64 import urlsafe_b64encode
from dataclasses import asdict, dataclass
from pathlib import Path

from streams.errors import ConfigurationError

HOST = "127.0.0.1"


@dataclass(frozen=True)
class NodeRecord:
    """One node as written down: its ports are kept so that a restarted node is found where it was."""

    id: int
    port: int
    controller_port: int
    pid: int | None = None


@dataclass(frozen=True)
class BrokerRecord:
    """All nodes of one folder, and the cluster that its data belongs to."""

    cluster_id: str
    nodes: tuple[NodeRecord, ...]


def new_cluster_id() -> str:
    """Make a random id as Kafka writes them; a leading dash would be read as an option."""
    while (made := urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")).startswith("-"):
        pass
    return made


def lock_file(folder: Path) -> Path:
    """Held while nodes are started or stopped."""
    return folder / "lock"


def node_folder(folder: Path, node: int) -> Path:
    """Everything of one node."""
    return folder / f"node-{node}"


def data_folder(folder: Path, node: int) -> Path:
    """Where Kafka keeps its data."""
    return node_folder(folder, node) / "data"


def log_file(folder: Path, node: int) -> Path:
    """Where the node writes what it does."""
    return node_folder(folder, node) / "broker.log"


def properties_file(folder: Path, node: int) -> Path:
    """Where the node's configuration is; as the last word of its command line it also names the process."""
    return node_folder(folder, node) / "server.properties"


def read_record(folder: Path) -> BrokerRecord | None:
    """Read what the folder says, or nothing where no broker ever was."""
    path = folder / "broker.json"
    try:
        found = json.loads(path.read_text())
        return BrokerRecord(found["cluster_id"], tuple(NodeRecord(**node) for node in found["nodes"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"reading {path}: {error}. Remove {folder} to begin with an empty broker") from error


def write_record(folder: Path, record: BrokerRecord) -> None:
    """Replace the record in one step: a reader without the lock sees the old one or the new one."""
    fresh = folder / "broker.json.new"
    fresh.write_text(json.dumps(asdict(record), indent=2) + "\n")
    fresh.replace(folder / "broker.json")


def write_properties(folder: Path, record: BrokerRecord, node: NodeRecord) -> None:
    """Write the configuration that the node starts with."""
    path = properties_file(folder, node.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name}={value}" for name, value in server_properties(folder, record, node).items()]
    path.write_text("\n".join(lines) + "\n")


def server_properties(folder: Path, record: BrokerRecord, node: NodeRecord) -> dict[str, str | int]:
    """Broker and controller in one process, reachable from this machine only."""
    copies = len(record.nodes)
    copies_least = max(1, copies - 1)
    return {
        "process.roles": "broker,controller",
        "node.id": node.id,
        # The static form: the ports are read from here at each start, so they may change while all nodes are down.
        "controller.quorum.voters": ",".join(f"{n.id}@{HOST}:{n.controller_port}" for n in record.nodes),
        "listeners": f"BROKER://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"BROKER://{HOST}:{node.port}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data_folder(folder, node.id)),
        "default.replication.factor": copies,
        "min.insync.replicas": copies_least,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": copies_least,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": copies_least,
        # Few internal partitions: each is a file to open at a start and a load at a restart.
        "offsets.topic.num.partitions": 10,
        "transaction.state.log.num.partitions": 10,
        "share.coordinator.state.topic.num.partitions": 1,
        "auto.create.topics.enable": "false",
        "controlled.shutdown.enable": "true",
        # A killed node is let in again only when the session of its last life is over.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3_000,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
        # A dead worker's transaction holds up readers for its timeout and at most this much more.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
        # The default would take a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": 32 * 1024 * 1024,
        "log.retention.hours": 168,
    }
