"""Chooses the ports of a local broker: the ones asked for, the ones it had, or free ones."""

import random
import socket
import time
from collections.abc import Iterator

from streams.errors import BrokerUnavailable
from topology.broker_files import HOST, BrokerRecord, NodeRecord

PORT_DEFAULT = 9092
RELEASE_TIMEOUT_S = 3.0
# Below the range that outgoing connections take their ports from: a client that keeps calling
# a dead broker there can be given the broker's own port, and then holds it against the restart.
FREE_PORTS = range(20_000, 32_000)


def choose(nodes: int, port: int | None, before: BrokerRecord | None) -> tuple[NodeRecord, ...]:
    """One port per node for clients, following `port`, and one for its controller."""
    free = _free_ports()
    wanted = _remembered(before) if not port else [port + index for index in range(nodes)]
    if port is None:
        wanted = wanted or [PORT_DEFAULT + index for index in range(nodes)]
    if port == 0 and not (wanted and all(map(_becomes_free, wanted))):
        wanted = [next(free) for _ in range(nodes)]
    for taken in (number for number in wanted if not _becomes_free(number)):
        raise BrokerUnavailable(
            f"starting a local broker: port {taken} on {HOST} is taken by another process. "
            "Ask for free ports with --free-port, or, if a Kafka of yours listens there, set HOOKLINE_BOOTSTRAP_SERVERS to it"
        )
    controllers = [next(free) for _ in range(nodes)]
    return tuple(NodeRecord(index + 1, wanted[index], controllers[index]) for index in range(nodes))


def _remembered(before: BrokerRecord | None) -> list[int]:
    return [node.port for node in before.nodes] if before else []


def is_free(port: int) -> bool:
    """Whether a listener could take the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def is_open(port: int) -> bool:
    """Whether somebody listens at the port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _becomes_free(port: int) -> bool:
    """Whether the port is free, or soon is: a process that was just killed lets go of its sockets a little later."""
    deadline = time.monotonic() + RELEASE_TIMEOUT_S
    while not (free := is_free(port)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return free


def _free_ports() -> Iterator[int]:
    shuffled = random.sample(FREE_PORTS, len(FREE_PORTS))
    yield from filter(is_free, shuffled)
    raise BrokerUnavailable(f"starting a local broker: no port from {FREE_PORTS.start} to {FREE_PORTS.stop} is free. Name one with --port")
