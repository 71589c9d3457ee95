"""Runs the processes of a local broker: formats their storage, starts them detached, knows them again, and ends them."""

import os
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from streams.errors import BrokerUnavailable
from topology import broker_files as files
from topology.broker_files import BrokerRecord, NodeRecord
from topology.broker_jars import Progress, class_archive, ensure_jars
from topology.broker_java import find_java

END_POLL_S = 0.02
HEAP = ["-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
LOGGING = [
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    # 300 lines of configuration at each start, and a line for each partition's every change of state.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
    "-Dorg.slf4j.simpleLogger.log.state.change.logger=warn",
]
# The shell ends at once, so the broker is nobody's child: no caller has to wait for it, and Ctrl-C does not reach it.
DETACH = ["sh", "-c", '"$@" >"$0" 2>&1 </dev/null & echo $!']


def prepare(folder: Path, record: BrokerRecord, progress: Progress) -> None:
    """Fetch what is missing, write every node's configuration and format storage that is new."""
    ensure_jars(progress)
    for node in record.nodes:
        files.write_properties(folder, record, node)
    blank = [node for node in record.nodes if not (files.data_folder(folder, node.id) / "meta.properties").exists()]
    if blank:
        progress("formatting storage")
        _format(folder, record, blank)


def _format(folder: Path, record: BrokerRecord, blank: Sequence[NodeRecord]) -> None:
    """Format all nodes side by side; the first run on a machine also leaves the archive of Kafka's classes."""
    java, jars = find_java(), ensure_jars(lambda _: None)
    archive = class_archive(java, jars)
    fresh = archive.with_name(f"{archive.stem}-{os.getpid()}.new")
    running = []
    for node in blank:
        share = [] if archive.exists() or node is not blank[0] else [f"-XX:ArchiveClassesAtExit={fresh}"]
        tool = ["kafka.tools.StorageTool", "format", "-t", record.cluster_id, "-c", str(files.properties_file(folder, node.id))]
        command = [*_java(share), "-XX:TieredStopAtLevel=1", *tool]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate()[0] for process in running]
    if failed := [words for words, process in zip(said, running, strict=True) if process.returncode]:
        raise BrokerUnavailable(f"formatting storage in {folder}: {failed[0].strip()[-800:]}. Remove {folder} and start again")
    if fresh.exists():
        fresh.replace(archive)


def launch(folder: Path, node: NodeRecord) -> int:
    """Start a node that outlives this process, and answer with its pid."""
    log = files.log_file(folder, node.id)
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    command = [*_java(HEAP), *LOGGING, "kafka.Kafka", str(files.properties_file(folder, node.id))]
    started = subprocess.run([*DETACH, str(log), *command], stdout=subprocess.PIPE, text=True, start_new_session=True, check=True)
    return int(started.stdout)


def _java(options: list[str]) -> list[str]:
    java, jars = find_java(), ensure_jars(lambda _: None)
    archive = class_archive(java, jars)
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return [str(java.executable), *options, *shared, "-cp", ":".join(map(str, jars))]


def find(folder: Path, node: NodeRecord) -> psutil.Process | None:
    """Find the node's process if it is alive. A reused pid is never taken for it: the command line must name this very node."""
    if node.pid is None:
        return None
    try:
        process = psutil.Process(node.pid)
        alive = process.status() != psutil.STATUS_ZOMBIE
        return process if alive and process.cmdline()[-1:] == [str(files.properties_file(folder, node.id))] else None
    except psutil.Error:
        return None


def end(folder: Path, record: BrokerRecord, ids: Collection[int], timeout_s: float) -> tuple[int, ...]:
    """Ask the nodes to end, wait, and kill what remains; answer with the ids that had to be killed."""
    asked = [node for node in record.nodes if node.id in ids]
    for node in asked:
        _signal(folder, node, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while (remaining := [node for node in asked if find(folder, node)]) and time.monotonic() < deadline:
        for node in remaining if _only_farewell_remains(folder, record) else ():
            _signal(folder, node, signal.SIGKILL)
        time.sleep(END_POLL_S)
    for node in remaining:
        _signal(folder, node, signal.SIGKILL)
    while any(find(folder, node) for node in remaining):
        time.sleep(END_POLL_S)
    return tuple(node.id for node in remaining)


def _only_farewell_remains(folder: Path, record: BrokerRecord) -> bool:
    """Whether the last nodes have closed their data and wait only for an election that no majority is left to hold.

    Kafka waits 5 s for it, whatever is configured, and then gives up; its metadata is on disk since it was written.
    """
    running = [node for node in record.nodes if find(folder, node)]
    no_majority = 2 * len(running) <= len(record.nodes)
    return no_majority and all((files.data_folder(folder, node.id) / ".kafka_cleanshutdown").exists() for node in running)


def _signal(folder: Path, node: NodeRecord, number: signal.Signals) -> None:
    process = find(folder, node)
    if process:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
