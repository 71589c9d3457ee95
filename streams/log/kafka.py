"""The log on Kafka: one agent's consumer, transactional producer, changelog and stores behind `port.Log`."""

import asyncio
import concurrent.futures
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocksdict import Cache

from streams.log.agent import Agent
from streams.log.machine import Machine
from streams.log.offsets import Mark
from streams.log.port import Partition, Transaction
from streams.log.records import Write
from streams.log.restore import Restorer
from streams.log.source import Batch, Source
from streams.log.store import RocksStore, StoreOptions
from streams.log.transactor import Transactor
from streams.settings import Settings
from topology.topics import Topic

BATCH_BYTES_MAX = 1_000_000


@dataclass(frozen=True)
class Connection:
    """What all agents of a process share: the cluster, the names on it, the worker's id and folder."""

    settings: Settings
    kafka: Mapping[str, Any]
    worker: str
    folder: Path
    block_cache: Cache

    def writer(self) -> str:
        """A name for this process and no other, for its marks."""
        return f"{self.worker}.{time.time_ns() // 1_000_000:x}"

    def name(self, topic: Topic) -> str:
        """A topic's name on the cluster."""
        return self.settings.topic_prefix + topic.name


class KafkaLog:
    """One agent's log in one process."""

    def __init__(self, agent: Agent, connection: Connection) -> None:
        """Blocks until the broker has ended what an earlier self left open: only then is it safe to join the group.

        The clients connect side by side, since a restarted worker is waited for.
        """
        settings = connection.settings
        group = f"{settings.topic_prefix}hookline-{agent.name}"
        self._name: Callable[[Topic], str] = connection.name
        self._names = {topic: connection.name(topic) for topic in agent.reads}
        self._folder = connection.folder / agent.name
        self._warm_max = settings.warm_stores_max
        self._stores: dict[int, RocksStore] = {}
        self._epoch = 0
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"commit-{agent.name}")
        instance = f"{connection.worker}-{agent.name}"
        options = StoreOptions(connection.block_cache, settings.rocksdb_write_buffer_mb * 1024 * 1024, settings.store_age_max_h * 3_600_000)
        session = {"session.timeout.ms": settings.session_timeout_ms, "heartbeat.interval.ms": settings.heartbeat_interval_ms}
        batch_bytes = min(BATCH_BYTES_MAX, *(topic.record_bytes_max for topic in (*agent.writes, agent.changelog)))
        with concurrent.futures.ThreadPoolExecutor(3) as connecting:
            transactor = connecting.submit(
                Transactor,
                connection.kafka,
                f"{settings.topic_prefix}{instance}",
                settings.session_timeout_ms,
                self._name,
                agent.changelog,
                batch_bytes,
            )
            restorer = connecting.submit(Restorer, connection.kafka, group, connection.name(agent.changelog), self._folder, options)
            source = connecting.submit(Source, connection.kafka, group, instance, agent.reads, connection.name, session)
            self._transactor, self._restorer, self._source = transactor.result(), restorer.result(), source.result()

    async def start(self, machine: Machine) -> None:
        """Join the group on the machine's behalf."""
        self._machine = machine
        await self._source.start(self)

    async def read(self) -> Batch:
        """The next records, when the machine has room for them."""
        await self._machine.room()
        return await self._source.read()

    async def stop_reading(self) -> None:
        """Leave the machine to finish what it has."""
        await self._source.close()

    async def close(self) -> None:
        """Let go of what is left; the files of every shard held stay, for the next process."""
        await self._restorer.close()
        stores, self._stores = list(self._stores.values()), {}
        for store in stores:
            await asyncio.get_running_loop().run_in_executor(self._thread, store.close)
        await asyncio.to_thread(self._thread.shutdown)

    # Told by the source

    async def assigned(self, epoch: int, generation: Any, numbers: Sequence[int]) -> None:
        """On to the machine; what it asks for from now on belongs to this assignment."""
        self._epoch = epoch
        await self._machine.assigned(epoch, generation, numbers)

    async def revoked(self) -> None:
        """On to the machine."""
        await self._machine.revoked()

    def lost(self) -> None:
        """On to the machine."""
        self._machine.lost()

    # Asked by the machine

    async def marks(self, partitions: Sequence[Partition]) -> Mapping[Partition, Mark | None]:
        """What is committed, once it can change no more."""
        if not partitions:
            return {}
        marks = await self._restorer.marks([(self._names[topic], number) for topic, number in partitions])
        return dict(zip(partitions, marks, strict=True))

    async def beginning(self, partition: Partition) -> int:
        """The first offset that there is."""
        return await self._restorer.beginning(self._names[partition[0]], partition[1])

    async def open(self, shard: int) -> RocksStore:
        """A shard's store, restored."""
        store = self._stores[shard] = await self._restorer.open(shard)
        return store

    async def close_shard(self, shard: int) -> None:
        """Close a shard's store; the files of the most recently lost stay as a warm start."""
        store = self._stores.pop(shard, None)
        if store is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close_store, store)

    async def write(self, transaction: Transaction) -> None:
        """Commit, then store."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write, transaction)

    async def probe(self, writes: Sequence[tuple[int, Write]]) -> bool:
        """Whether the broker takes these records."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transactor.probe, writes)

    def read_from(self, positions: Mapping[Partition, int], paused: Collection[Partition]) -> None:
        """Read these from now on, and nothing else."""
        self._source.read_from(self._epoch, positions, paused)

    def resume(self, partition: Partition, offset: int | None = None) -> None:
        """Read on."""
        self._source.resume(self._epoch, partition, offset)

    def pause(self, partition: Partition) -> None:
        """Read no more of it for now."""
        self._source.pause(self._epoch, partition)

    # On the commit thread

    def _write(self, transaction: Transaction) -> None:
        checkpoints = self._transactor.write(transaction)
        for shard, changes in transaction.changes.items():
            self._stores[shard].apply(changes, self._restorer.checkpoint(checkpoints[shard]))

    def _close_store(self, store: RocksStore) -> None:
        store.close()
        os.utime(store.folder, ns=(time.time_ns(), time.time_ns()))  # when it was lost: what is kept longest is what was lost last
        held = {str(shard) for shard in self._stores}
        warm = sorted((f for f in self._folder.iterdir() if f.name.isdigit() and f.name not in held), key=lambda f: f.stat().st_mtime)
        for folder in warm[: max(0, len(warm) - self._warm_max)]:
            shutil.rmtree(folder, ignore_errors=True)
