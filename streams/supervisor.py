"""Runs worker processes: forks them, starts again what dies, and stops them all in order.

The supervisor imports everything once and opens no connection and no thread, so that a worker is a fork away from work.
"""

import ctypes
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

log_line = structlog.get_logger()

WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
QUICK_DEATH_S = 2.0
BACKOFF_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
TICK_S = 0.1
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Life:
    """What a worker is told of itself: which one it is, how often it has lived, and how to say that it is ready."""

    worker: int
    turn: int
    ready_fd: int

    def ready(self, address: str) -> None:
        """Everything of this worker is at work; `address` is where it serves people, if it does."""
        os.write(self.ready_fd, address.encode() + b"\n")


@dataclass
class Slot:
    """One worker's place, and who has it now."""

    worker: int
    pid: int | None = None
    turn: int = 0
    quick_deaths: int = 0
    started_s: float = 0.0
    start_at_s: float = 0.0
    ready_fd: int = -1
    ready: bool = False
    address: str = ""


@dataclass
class Supervisor:
    """`work` runs in each worker process and returns when its SIGTERM has been obeyed; its exit code is 1 when it raises."""

    work: Callable[[Life], None]
    workers: int = 1
    stop_within_s: float = 6.0
    on_ready: Callable[[list[str]], None] = lambda addresses: None
    _slots: list[Slot] = field(default_factory=list)
    _stopping: bool = False
    _told_ready: bool = False

    def run(self) -> None:
        """Keep the workers running until SIGTERM or SIGINT."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        self._slots = [Slot(worker) for worker in range(1, self.workers + 1)]
        try:
            while not self._stopping:
                self._start_due()
                self._wait()
        finally:
            self._stop_all()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not interrupt what is stopped after the workers
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)

    def _wait(self) -> None:
        caught = signal.sigtimedwait(WATCHED, TICK_S if not self._told_ready or self._someone_is_due() else 1.0)
        if caught is not None and caught.si_signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._stopping = True
        self._note_ready()
        self._reap()

    def _someone_is_due(self) -> bool:
        return any(slot.pid is None for slot in self._slots)

    def _start_due(self) -> None:
        for slot in self._slots:
            if slot.pid is None and slot.start_at_s <= time.monotonic():
                self._start(slot)

    def _start(self, slot: Slot) -> None:
        slot.turn += 1
        slot.started_s, slot.ready = time.monotonic(), False
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._be_worker(Life(slot.worker, slot.turn, writing), parent)
        os.close(writing)
        if slot.ready_fd >= 0:
            os.close(slot.ready_fd)
        slot.pid, slot.ready_fd = pid, reading

    def _be_worker(self, life: Life, parent: int) -> None:
        """In the fork: out of the terminal's reach, and gone when the supervisor is."""
        code = 1
        try:
            os.setsid()
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() == parent:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
                self.work(life)
                code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        except BaseException:  # noqa: BLE001 - the fork must never return into the supervisor's own code
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        for slot in self._slots:
            if slot.pid is None or os.waitpid(slot.pid, os.WNOHANG)[0] == 0:
                continue
            lived_s = time.monotonic() - slot.started_s
            never_worked = lived_s < QUICK_DEATH_S or not slot.ready
            slot.quick_deaths = slot.quick_deaths + 1 if never_worked else 0
            wait_s = BACKOFF_S[min(slot.quick_deaths, len(BACKOFF_S) - 1)]
            slot.pid, slot.start_at_s = None, time.monotonic() + wait_s
            if not self._stopping:
                log_line.error("worker.died", worker=slot.worker, lived_s=round(lived_s, 1), starts_again_in_s=wait_s)

    def _note_ready(self) -> None:
        for slot in self._slots:
            if slot.pid is not None and not slot.ready:
                try:
                    told = os.read(slot.ready_fd, 1_000)
                except BlockingIOError:
                    continue
                slot.ready, slot.address = told.endswith(b"\n"), told.decode().strip()
        if not self._told_ready and all(slot.ready for slot in self._slots):
            self._told_ready = True
            self.on_ready([slot.address for slot in self._slots if slot.address])

    def _stop_all(self) -> None:
        """SIGTERM, a while to finish and commit, then SIGKILL: the log is the truth for the next one."""
        self._stopping = True
        for slot in self._slots:
            if slot.pid is not None:
                os.kill(slot.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + self.stop_within_s
        while any(slot.pid is not None for slot in self._slots) and time.monotonic() < deadline_s:
            signal.sigtimedwait({signal.SIGCHLD}, TICK_S)
            self._reap()
        for slot in self._slots:
            if slot.pid is not None:
                log_line.warning("worker.killed", worker=slot.worker, after_s=self.stop_within_s)
                os.kill(slot.pid, signal.SIGKILL)
                os.waitpid(slot.pid, 0)
