"""A broker from `docker compose`, where an engine answers and this folder has a compose file."""

import shutil
import subprocess
from pathlib import Path

from streams.errors import BrokerUnavailable

COMPOSE_FILE = Path("docker-compose.yml")
SERVICE = "broker"
SERVERS = "127.0.0.1:9092"
ANSWER_TIMEOUT_S = 2
START_TIMEOUT_S = 300


def docker_answers() -> bool:
    """Whether an engine answers quickly and there is something for it to start."""
    return COMPOSE_FILE.exists() and shutil.which("docker") is not None and _docker("info", timeout_s=ANSWER_TIMEOUT_S) is not None


def compose_servers() -> str | None:
    """Say where the composed broker is reached, if it runs."""
    return SERVERS if docker_answers() and _docker("compose", "ps", "--status", "running", "-q", SERVICE, timeout_s=10) else None


def compose_start() -> str:
    """Start the composed broker and wait until it is healthy."""
    if _docker("compose", "up", "--detach", "--wait", SERVICE, timeout_s=START_TIMEOUT_S) is None:
        raise BrokerUnavailable(
            "starting a broker with `docker compose up --detach --wait broker` failed. "
            "Run it by hand to see why, or start one without Docker: `hookline broker start --local`"
        )
    return SERVERS


def compose_stop() -> None:
    """Stop the composed broker; its volume keeps what was written."""
    _docker("compose", "stop", SERVICE, timeout_s=60)


def _docker(*arguments: str, timeout_s: float) -> str | None:
    """Answer with what docker printed, or nothing when it failed."""
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
