"""CPU time of processes that are watched from outside: on a machine that others use too, it is steadier than the time on the clock."""

import psutil

from bench.ground import BenchmarkError


def cpu_s(pid: int) -> float:
    """What a process and its threads have used so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def listener_of(bootstrap: str) -> int:
    """Find the process that listens at this machine's address: the broker."""
    port = int(bootstrap.split(",", maxsplit=1)[0].rpartition(":")[2])
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return int(connection.pid)
    raise BenchmarkError(f"looking for the broker at {bootstrap}: no process of this machine listens there, so its CPU cannot be measured")
