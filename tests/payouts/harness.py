"""What a payouts test on real Kafka is made of: `hookline run`, a bank behind a real socket, commands, and what came out."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from confluent_kafka import Producer, TopicPartition

import schemas
from schemas.catalogue import Schema
from streams.payouts.channels.demo import Behaviour, DemoChannel
from streams.running import prepare_topics
from streams.settings import Settings
from tests.hookline_run import COMMAND, ROOT, SECRET_KEYS, HooklineRun
from tests.log.clients import read_to_end
from tests.payouts.shards import BENEFICIARY, command
from tests.pipeline.outcome import READ_MAX, reader
from topology import topics
from topology.topics import Topic

Served = TypeVar("Served")

AMOUNT = 1_000
FEES = '{"mobile_wallet/PKR": {"basis_points": 100}}'


class InThread(Generic[Served]):
    """A server in a thread of its own, with what it is known by."""

    def __init__(self, server: AbstractAsyncContextManager[Served]) -> None:
        self._begun, self._loop = threading.Event(), asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve(server)), daemon=True)
        self._thread.start()
        assert self._begun.wait(30)

    async def _serve(self, server: AbstractAsyncContextManager[Served]) -> None:
        async with server as self.served:
            self._begun.set()
            await self._over.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30)
        self._loop.close()


class PayoutsRun:
    """Everything of one run, under a topic prefix of its own: make it, `start` it, send commands, and wait for what must hold."""

    def __init__(
        self, servers: str, prefix: str, folder: Path, behaves: Callable[[str], Behaviour] = lambda key: "success", *,
        roles: Sequence[str] = ("payouts,channels,ladder",), workers: int = 1, partitions: int = 2, time_scale: float = 200, **others: str,
    ) -> None:  # fmt: skip
        """Each of `roles` is a `hookline run` of its own; `others` are settings."""
        self.servers, self.prefix, self.folder, self.partitions = servers, prefix, folder, partitions
        self._behaves, self._roles, self.workers = behaves, roles, workers
        self._given = {
            "HOOKLINE_PARTITIONS": str(partitions), "HOOKLINE_TIME_SCALE": str(time_scale), "HOOKLINE_PAYOUT_FEES": FEES,
            "HOOKLINE_ALLOW_LOOPBACK": "true", **others,
        }  # fmt: skip
        self.runs: list[HooklineRun] = []
        self.status: dict[str, dict[str, Any]] = {}
        """The last word on each payout, by merchant and id."""
        self.batches: dict[str, dict[str, Any]] = {}
        self._pids: dict[tuple[int, int], int] = {}

    def __enter__(self) -> Self:
        """Make the topics and let the bank begin; the workers begin with `start`."""
        settings = Settings(bootstrap_servers=self.servers, topic_prefix=self.prefix, partitions=self.partitions, secret_keys=SECRET_KEYS)
        prepare_topics(settings, self.servers, may_apply=True)
        self.bank = DemoChannel(behaves=self._behaves, slow_s=0.3)
        self._serving = InThread(self.bank.serving())
        self._producer = Producer(
            {"bootstrap.servers": self.servers, "partitioner": "murmur2_random", "enable.idempotence": True, "log_level": 0}
        )
        self._reader = reader(self.servers, self.prefix)
        names = (self._name(topic) for topic in (topics.PAYOUT_STATUS, topics.PAYOUT_BATCH_STATUS))
        self._reader.assign([TopicPartition(name, number, 0) for name in names for number in range(self.partitions)])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        self._reader.close()
        self._serving.close()

    def _name(self, topic: Topic) -> str:
        return self.prefix + topic.name

    # Workers

    def start(self) -> None:
        """Let the workers begin, and wait until they are at work."""
        channel = {"mobile_wallet": {"url": self._serving.served, "key_id": "us", "secret": "demo", "timeout_s": 3}}
        others = {**self._given, "HOOKLINE_CHANNELS": json.dumps(channel)}
        for number, roles in enumerate(self._roles):
            folder = self.folder / str(number)
            folder.mkdir()
            self.runs.append(HooklineRun(self.servers, self.prefix, folder, "--role", roles, "--workers", str(self.workers), **others))
        for run in self.runs:
            run.wait_for("Hookline is ready")

    def kill(self, run: int, worker: int) -> None:
        """kill -9, once the worker that was killed before it has been followed by another."""
        self.until(lambda: self.runs[run].pid(worker) != self._pids.get((run, worker)), f"worker {worker} was started again")
        self._pids[run, worker] = self.runs[run].pid(worker)
        os.kill(self._pids[run, worker], signal.SIGKILL)

    def stop(self) -> None:
        """Let the workers finish what is under way and end; what came out can still be read."""
        for run in self.runs:
            if run.process.poll() is None:
                run.stop()

    def cli(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """A command as a person types it."""
        environment = {
            **os.environ, "HOOKLINE_BOOTSTRAP_SERVERS": self.servers, "HOOKLINE_TOPIC_PREFIX": self.prefix,
            "HOOKLINE_STATE_DIR": str(self.folder), "HOOKLINE_SECRET_KEYS": SECRET_KEYS, "PYTHONPATH": str(ROOT), **self._given,
        }  # fmt: skip
        command = [*COMMAND, *arguments]
        return subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)

    # Commands

    def send(self, commands: Iterable[Mapping[str, Any]]) -> None:
        """Commands as any caller writes them."""
        for fields in commands:
            value = schemas.encode(schemas.PAYOUT_COMMAND, fields)
            while True:
                try:
                    self._producer.produce(self._name(topics.PAYOUT_COMMANDS), value, fields["merchant"].encode())
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(120) == 0

    def open_account(self, merchant: str, money: int) -> None:
        """A merchant has a beneficiary and money."""
        self.send(
            [
                command("REGISTER_BENEFICIARY", {**BENEFICIARY, "merchant": merchant}, merchant),
                command("FUND_ACCOUNT", {"transfer_id": "t", "amount_minor": money, "currency": "PKR"}, merchant),
            ]
        )

    # What came out

    def read(self) -> None:
        """Take in what has been committed since."""
        while messages := self._reader.consume(READ_MAX, 0.05):
            for message in messages:
                if message.error() is not None:
                    continue
                key = (message.key() or b"").decode().replace(" ", "/")
                if message.topic() == self._name(topics.PAYOUT_STATUS):
                    self.status[key] = schemas.decode(message.value() or b"", schemas.PAYOUT_STATUS)
                else:
                    self.batches[key] = schemas.decode(message.value() or b"", schemas.PAYOUT_BATCH_STATUS)
            if len(messages) < READ_MAX:
                return

    def until(self, holds: Callable[[], bool], what: str, timeout_s: float = 150) -> None:
        """Read on until it holds; the deadline is only there so that a failure ends."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self.read()
            if holds():
                return
            for run in self.runs:
                assert run.process.poll() is None, f"hookline run ended while waiting: {what}\n{_end_of(run)}"
            assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s in vain: {what}\n{self.summary()}\n{_end_of(self.runs[0])}"
            time.sleep(0.05)

    def until_all(self, keys: Iterable[str], states: Iterable[str], timeout_s: float = 150) -> None:
        """Until each of these payouts stands so."""
        left, wanted = set(keys), set(states)

        def hold() -> bool:
            left.difference_update([key for key in left if key in self.status and self.status[key]["state"] in wanted])
            return not left

        self.until(hold, f"all are one of {sorted(wanted)}", timeout_s)

    def summary(self) -> str:
        return f"payouts {dict(Counter(each['state'] for each in self.status.values()))}, batches {list(self.batches.values())}"

    def all_of(self, topic: Topic, schema: Schema) -> list[dict[str, Any]]:
        """Every committed record of a topic."""
        records = read_to_end({"bootstrap.servers": self.servers}, self._name(topic), self.partitions)
        return [schemas.decode(value, schema) for _, value in records]


def _end_of(run: HooklineRun) -> str:
    return "\n".join(run.output.read_text().splitlines()[-20:])
