"""`hookline run` as a person starts it, in a process of its own, with what it has said so far."""

import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-c", "from streams.cli import main; main()"]
SECRET_KEYS = "k1:" + b64encode(bytes(32)).decode()


class HooklineRun:
    """A started `hookline run`."""

    def __init__(self, servers: str, prefix: str, folder: Path, *options: str, **others: str) -> None:
        """Start it; `others` are settings beside the usual ones."""
        self.output = folder / "output.txt"
        self.state = folder / "state"
        environment = {
            **os.environ,
            "HOOKLINE_BOOTSTRAP_SERVERS": servers,
            "HOOKLINE_TOPIC_PREFIX": prefix,
            "HOOKLINE_STATE_DIR": str(self.state),
            "HOOKLINE_HTTP_PORT": "0",
            "HOOKLINE_PARTITIONS": "2",
            "HOOKLINE_SECRET_KEYS": SECRET_KEYS,
            **others,
            "PYTHONPATH": str(ROOT),
        }
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*COMMAND, "run", *options], env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT
            )

    def wait_for(self, text: str, timeout_s: float = 90) -> str:
        """Wait until it says this; everything that it has said."""
        deadline_s = time.monotonic() + timeout_s
        while text not in self.output.read_text():
            assert self.process.poll() is None and time.monotonic() < deadline_s, f"never said {text!r}:\n{self.output.read_text()}"
            time.sleep(0.05)
        return self.output.read_text()

    def pid(self, worker: int) -> int:
        """Which process a worker is now."""
        return int((self.state / f"worker-{worker}" / "pid").read_text())

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ask it to end; what it ended with."""
        self.process.send_signal(number)
        return self.process.wait(30)
