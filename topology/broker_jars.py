"""Fetches Kafka's jars once for this machine, into a cache that every checkout shares."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streams.errors import ConfigurationError
from topology.broker_java import Java

KAFKA_VERSION = "4.3.1"
POM = Path(__file__).with_name("pom.xml")

Progress = Callable[[str], None]


def cache_folder() -> Path:
    """Where the jars are kept, beside the class archives that make a start quick."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hookline" / f"kafka-{KAFKA_VERSION}"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; whoever else asks waits, in this process or another, and a dead holder's lock is free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def ensure_jars(progress: Progress) -> tuple[Path, ...]:
    """Kafka's jars, in a fixed order: a class archive is only valid for the class path it was made with."""
    folder = cache_folder() / "lib"
    if not folder.exists():
        with locked(cache_folder() / "lock"):
            if not folder.exists():
                progress(f"fetching Kafka {KAFKA_VERSION}, once for this machine")
                _fetch(folder)
    return tuple(sorted(folder.glob("*.jar")))


def _fetch(folder: Path) -> None:
    """Copy into a neighbour and rename, so that a folder that exists is whole."""
    maven = shutil.which("mvn")
    if not maven:
        raise ConfigurationError(
            f"fetching Kafka {KAFKA_VERSION} for a local broker: Maven is not installed. "
            "Install it with `apt-get install maven`, or set HOOKLINE_BOOTSTRAP_SERVERS to a cluster"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as temporary:
        shutil.copy(POM, temporary)
        copy = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib", "-DincludeScope=runtime"]
        fetched = subprocess.run(copy, cwd=temporary, capture_output=True, text=True, check=False)
        if fetched.returncode:
            said = (fetched.stdout + fetched.stderr).strip()[-1500:]
            raise ConfigurationError(
                f"fetching Kafka {KAFKA_VERSION} with `{' '.join(copy)}` failed. Check the network, then start again. {said}"
            )
        (Path(temporary) / "lib").rename(folder)


def class_archive(java: Java, jars: tuple[Path, ...]) -> Path:
    """Where this Java keeps Kafka's classes ready to map: a broker starts in two thirds of the time."""
    fits = hashlib.sha256("\n".join([java.build, *map(str, jars)]).encode()).hexdigest()[:12]
    return cache_folder() / f"classes-{fits}.jsa"
