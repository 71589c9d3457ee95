"""A supervisor starts again what dies, waits longer when it dies at once, and stops all when told."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import os, pathlib, signal, sys, time
from streams.supervisor import Supervisor
folder = pathlib.Path(sys.argv[1])
def work(life):
    (folder / f"{life.worker}.{life.turn}").write_text(str(os.getpid()))
    life.ready("http://here/")
    if sys.argv[2] == "dies":
        raise RuntimeError("dies at once")
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: None if sys.argv[2] == "deaf" else stopped.append(1))
    while not stopped:
        time.sleep(0.01)
    (folder / f"{life.worker}.stopped").touch()
def ready(addresses):
    (folder / "ready").write_text(" ".join(addresses))
Supervisor(work, workers=2, stop_within_s=1.0, on_ready=ready).run()
(folder / "ended").touch()
"""


def start(folder: Path, how: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), how], cwd=ROOT, stderr=subprocess.DEVNULL)


def wait_for(path: Path) -> str:
    deadline_s = time.monotonic() + 60
    while not path.exists() or (path.suffix != ".stopped" and not path.read_text()):
        assert time.monotonic() < deadline_s, f"{path} never came"
        time.sleep(0.01)
    return path.read_text()


def test_a_killed_worker_is_started_again_and_the_other_is_left_alone(tmp_path: Path) -> None:
    supervisor = start(tmp_path, "works")
    assert wait_for(tmp_path / "ready") == "http://here/ http://here/"

    os.kill(int(wait_for(tmp_path / "1.1")), signal.SIGKILL)
    wait_for(tmp_path / "1.2")
    supervisor.terminate()

    assert supervisor.wait(20) == 0
    assert (tmp_path / "1.stopped").exists() and (tmp_path / "2.stopped").exists() and (tmp_path / "ended").exists()
    assert not (tmp_path / "2.2").exists()


def test_a_worker_that_does_not_obey_is_killed_in_the_end(tmp_path: Path) -> None:
    supervisor = start(tmp_path, "deaf")
    pids = [int(wait_for(tmp_path / f"{worker}.1")) for worker in (1, 2)]
    wait_for(tmp_path / "ready")
    supervisor.send_signal(signal.SIGINT)

    assert supervisor.wait(20) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_worker_that_dies_at_once_is_tried_again_and_again(tmp_path: Path) -> None:
    supervisor = start(tmp_path, "dies")
    wait_for(tmp_path / "1.3")
    supervisor.terminate()

    assert supervisor.wait(20) == 0


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    supervisor = start(tmp_path, "works")
    wait_for(tmp_path / "ready")
    supervisor.kill()
    supervisor.wait()

    wait_for(tmp_path / "1.stopped")
    wait_for(tmp_path / "2.stopped")
