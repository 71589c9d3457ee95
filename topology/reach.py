"""Finds the cluster that the settings mean, or starts one: configured servers, else Docker's broker, else a local Kafka."""

from pathlib import Path

from confluent_kafka.admin import AdminClient

from streams.errors import BrokerUnavailable
from streams.settings import Settings
from topology import broker, docker
from topology.broker_jars import Progress


def broker_folder(settings: Settings) -> Path:
    """Where the local broker keeps its files."""
    return settings.state_dir / "broker"


def running_servers(settings: Settings) -> str | None:
    """Say where a cluster is reached now, if there is one."""
    if settings.bootstrap_servers:
        return settings.bootstrap_servers
    local = broker.status(broker_folder(settings))
    return local.bootstrap_servers if local else docker.compose_servers()


def bootstrap_servers(settings: Settings) -> str:
    """Say where the cluster is reached, or what to do to have one."""
    servers = running_servers(settings)
    if not servers:
        raise BrokerUnavailable(
            f"looking for a Kafka cluster: HOOKLINE_BOOTSTRAP_SERVERS is not set and no broker runs from {broker_folder(settings)}. "
            "Run `hookline broker start`, or set the variable"
        )
    return servers


def ensure_cluster(settings: Settings, progress: Progress = broker.quiet) -> str:
    """Say where the cluster is reached, and start one where none runs."""
    servers = running_servers(settings)
    if servers:
        return servers
    if docker.docker_answers():
        progress("starting the broker of docker-compose.yml")
        return docker.compose_start()
    return broker.ensure(broker_folder(settings), progress=progress).bootstrap_servers


def admin_client(settings: Settings) -> AdminClient:
    """Open an admin client to the cluster that the settings mean; its own chatter is left to the errors that it raises."""
    return AdminClient({**settings.kafka(bootstrap_servers(settings)), "log_level": 0})
