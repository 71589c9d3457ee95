"""What a benchmark stands on: a broker, a folder, topics of its own, and processes beside the measuring one."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from streams.errors import HooklineError
from topology import broker
from topology.topics import Topic

ROOT = Path(__file__).parents[1]
PARTITIONS = 6
ADMIN_TIMEOUT_S = 30
STOP_TIMEOUT_S = 15


class BenchmarkError(HooklineError):
    """A benchmark could not be measured."""


@dataclass(frozen=True)
class Ground:
    """The cluster under a benchmark. Every topic and group of a run has its prefix."""

    bootstrap: str
    folder: Path
    prefix: str
    tell: Callable[[str], None]

    def name(self, topic: Topic) -> str:
        return self.prefix + topic.name

    def part(self, name: str) -> "Ground":
        """A part of it, with topics and a folder of its own."""
        part = Ground(self.bootstrap, self.folder / name, f"{self.prefix}{name.replace('_', '-')}-", self.tell)
        part.folder.mkdir()
        return part

    def make(self, topics: Sequence[Topic]) -> None:
        """Make topics as the topology would."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # kept: it takes its answers with it
        wanted = [NewTopic(self.name(topic), topic.partitions(PARTITIONS), 1, config=topic.config(1)) for topic in topics]
        made = admin.create_topics(wanted)
        for creation in made.values():
            creation.result(ADMIN_TIMEOUT_S)

    @contextmanager
    def process(self, name: str, module: str, *arguments: str) -> Iterator["Process"]:
        """Run a module in a process of its own, so that it shares no GIL with who measures it; asked to end on leaving."""
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", module, "--bootstrap", self.bootstrap, "--prefix", self.prefix, *arguments]
        with log.open("wb") as errors:
            running = Process(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True), log)
            try:
                yield running
            finally:
                running.end()


@dataclass(frozen=True)
class Process:
    """A process beside the measuring one. What it has to say is its last line on standard output."""

    process: "subprocess.Popen[str]"
    log: Path

    def check(self) -> None:
        """Raise if it has ended."""
        if self.process.poll() is not None:
            raise self._failed()

    def answer(self, timeout_s: float) -> str:
        """Wait for its end, and for what it said."""
        try:
            said, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"waiting for {self.process.args!r}: it took more than {timeout_s:.0f} s. Its log is {self.log}") from None
        if self.process.returncode != 0 or not said.strip():
            raise self._failed()
        return said.strip().splitlines()[-1]

    def end(self) -> None:
        """Ask it to end, and make it end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_TIMEOUT_S)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _failed(self) -> BenchmarkError:
        last = " | ".join(self.log.read_text(errors="replace").splitlines()[-3:])
        return BenchmarkError(
            f"running {self.process.args!r}: it ended with {self.process.returncode}. Its log {self.log} ends: {last[:1500]}"
        )


@contextmanager
def ground() -> Iterator[Ground]:
    """Start a broker of this run's own, gone after it; or use the one that HOOKLINE_TEST_BOOTSTRAP names."""
    given = os.environ.get("HOOKLINE_TEST_BOOTSTRAP")
    with tempfile.TemporaryDirectory(prefix="hookline-bench-", ignore_cleanup_errors=True) as name:
        folder, began_s = Path(name), time.monotonic()

        def tell(line: str) -> None:
            print(f"{time.monotonic() - began_s:6.1f} s  {line}", file=sys.stderr, flush=True)

        tell(f"using the broker at {given}" if given else "starting a broker")
        try:
            servers = given or broker.ensure(folder / "broker", port=0).bootstrap_servers
            standing = Ground(servers, folder, f"bench-{uuid4().hex[:8]}-", tell)
            try:
                yield standing
            finally:
                if given:
                    forget_topics(standing)
        finally:
            if not given:
                broker.stop(folder / "broker")


def forget_topics(standing: Ground) -> None:
    """Delete this run's topics from a broker that goes on."""
    admin = AdminClient({"bootstrap.servers": standing.bootstrap})
    ours = [topic for topic in admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics if topic.startswith(standing.prefix)]
    for deletion in admin.delete_topics(ours).values() if ours else ():
        deletion.result(ADMIN_TIMEOUT_S)
