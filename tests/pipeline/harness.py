"""What a pipeline test is made of: `hookline run` on real Kafka, merchants' servers on real sockets, events, and what came out."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from urllib.request import urlopen

import orjson
from confluent_kafka import Producer

from schemas.event import Event
from schemas.events import encode_event
from streams.delivery.keys import keyring
from streams.delivery.subscription import Subscription, changed, encoded
from streams.delivery.subscription_changes import NewSecret, Wanted, created, sealed
from streams.running import prepare_topics
from streams.settings import Settings
from tests import sink
from tests.hookline_run import SECRET_KEYS, HooklineRun
from tests.pipeline.outcome import Journal, Outcome
from topology import topics
from topology.topics import Topic

SOURCE = "/core"
UNHURRIED = Wanted(profile="simpaisa", rate_per_s=10_000.0, burst=10_000, in_flight_max=10)
"""A subscription that is held up by nothing of its own; its profile's headers tell the event, the attempt and the sequence."""


class Pipeline:
    """Everything of one run, under a topic prefix of its own: make it, subscribe, `start` it, send events, and wait for what must hold."""

    def __init__(self, servers: str, prefix: str, folder: Path, *, workers: int = 1, partitions: int = 2, **others: Any) -> None:
        """`others` are settings."""
        self.given = {"partitions": partitions, "allow_loopback": True, **others}
        self.settings = Settings(
            bootstrap_servers=servers, topic_prefix=prefix, secret_keys=SECRET_KEYS, state_dir=folder / "state", **self.given
        )
        self.servers, self.prefix, self.folder, self.workers = servers, prefix, folder, workers
        self.sent: dict[str, Event] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.stalling: set[str] = set()
        """Subscriptions whose deliveries are not over when all others are."""
        self.kills_ms: list[float] = []
        self.environment: dict[str, str] = {}
        self._keyring = keyring(self.settings)
        self._pids: dict[int, int] = {}

    def __enter__(self) -> Self:
        """Make the topics and let a merchants' server begin; the workers begin with `start`."""
        prepare_topics(self.settings, self.servers, may_apply=True)
        with ExitStack() as stack:
            self.port = stack.enter_context(sink.started("--journal", str(self.folder / "journal"))).port
            self.journal = Journal(self.folder / "journal")
            self.outcome = Outcome(self.servers, self.prefix, self.settings.partitions)
            stack.callback(self.outcome.close)
            self._producer = Producer(
                {
                    "bootstrap.servers": self.servers,
                    "partitioner": "murmur2_random",
                    "enable.idempotence": True,
                    "linger.ms": 0,
                    "queue.buffering.max.messages": 500_000,
                }
            )
            stack.callback(self.stop)
            self._closing = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.close()

    # Workers

    def start(self) -> None:
        """Let the workers begin, and wait until they are at work."""
        settings = {f"HOOKLINE_{name.upper()}": str(value).lower() for name, value in self.given.items()}
        self.run = HooklineRun(
            self.servers, self.prefix, self.folder, "--role", "deliver,ladder", "--workers", str(self.workers),
            **settings, **self.environment,
        )  # fmt: skip
        self.run.wait_for("Hookline is ready")

    def kill(self, worker: int) -> None:
        """kill -9, once the worker that was killed before it has been followed by another."""
        self.until(lambda: self.run.pid(worker) != self._pids.get(worker), f"worker {worker} was started again")
        self._pids[worker] = self.run.pid(worker)
        self.kills_ms.append(time.time() * 1_000)
        os.kill(self._pids[worker], signal.SIGKILL)

    def stop(self) -> None:
        """Let the workers finish what is under way and end; what came out can still be read."""
        run: HooklineRun | None = getattr(self, "run", None)
        if run is not None and run.process.poll() is None:
            run.stop()

    # Merchants

    def subscribe(self, merchant: str, path: str, wanted: Wanted = UNHURRIED, *, url: str | None = None, **others: Any) -> str:
        """A merchant's subscription whose endpoint behaves as its path says; `others` are parts of it. Its id."""
        number = sum(1 for each in self.subscriptions.values() if each.merchant == merchant)
        name = f"sub_{merchant}_{number}"
        given = {**wanted.parts(), "url": url or f"http://127.0.0.1:{self.port}{path}", **others}
        secret = sealed(NewSecret("sec_1", "hmac-sha256", "a secret of a merchant"), name, self._keyring, os.urandom(12), now_ms())
        self._write(created(name, merchant, Wanted(**given), secret, now_ms(), allow_loopback=True, disabled=False))
        return name

    def change(self, name: str, **changes: Any) -> None:
        """The next revision of a subscription; `path` is its endpoint's."""
        if (path := changes.pop("path", None)) is not None:
            changes["url"] = f"http://127.0.0.1:{self.port}{path}"
        self._write(changed(self.subscriptions[name].fields, now_ms(), **changes))

    def _write(self, fields: Mapping[str, Any]) -> None:
        self.subscriptions[fields["id"]] = Subscription(fields, self._keyring, self.settings.time_scale)
        self.produce(topics.SUBSCRIPTIONS, fields["id"].encode(), encoded(fields), ())
        self.flush()

    def behave(self, path: str, behaviour: str) -> None:
        """Let an endpoint behave otherwise from now on."""
        query = f"path={quote(path)}&behave={quote(behaviour)}"
        with urlopen(f"http://127.0.0.1:{self.port}/control/set?{query}", timeout=10) as answer:
            assert answer.status == 200

    # Events

    def send(self, merchant: str, count: int = 1, *, resources: Sequence[str] = (), name: str = "") -> list[str]:
        """So many new events, their resources in turn. Their ids."""
        ids = [f"evt_{merchant}_{name}{len(self.sent) + number}" for number in range(count)]
        for number, identity in enumerate(ids):
            resource = resources[number % len(resources)] if resources else None
            self.send_event(
                Event(id=identity, type="payin.success", source=SOURCE, merchant=merchant, time_ms=now_ms(), data=DATA, resource=resource)
            )
        return ids

    def send_event(self, event: Event) -> None:
        """An event as any producer writes it; the same one again is a duplicate."""
        self.sent[event.id] = event
        value, headers = encode_event(event)
        self.produce(topics.EVENTS, event.merchant.encode(), value, headers)

    def produce(self, topic: Topic, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]]) -> None:
        """Any record, placed by its key as a Java producer would."""
        while True:
            try:
                self._producer.produce(self.prefix + topic.name, value, key, headers=list(headers))
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def flush(self) -> None:
        """Until every record is acknowledged."""
        left = self._producer.flush(60)
        assert left == 0, f"{left} records were never acknowledged"

    # What came out

    def read(self) -> None:
        """Take in what has come since."""
        self.outcome.read()
        self.journal.read()

    def until(self, holds: Callable[[], bool], what: str, timeout_s: float = 150) -> None:
        """Read on until it holds; the deadline is only there so that a failure ends."""
        self.flush()
        deadline_s = time.monotonic() + timeout_s
        while True:
            self.read()
            if holds():
                return
            assert self.run.process.poll() is None, f"hookline run ended while waiting: {what}\n{self.said()}"
            assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s in vain: {what}\n{self.outcome.summary()}\n{self.said()}"
            time.sleep(0.01)

    def probe(self, merchant: str, name: str, shows: Callable[[str], bool], what: str) -> str:
        """Send one event after another until one comes out so that it shows that a change is current. Its id."""
        deadline_s = time.monotonic() + 150
        while time.monotonic() < deadline_s:
            [event] = self.send(merchant, resources=("a",))
            self.until(lambda event=event: self.outcome.state(event, name) in ("DELIVERED", "PENDING"), what)  # type: ignore[misc]
            if shows(event):
                return event
        raise AssertionError(f"no event came out as it was to: {what}")

    def are(self, state: str, name: str, ids: Sequence[str]) -> bool:
        """Whether all of these deliveries are in a state by their last word."""
        return all(self.outcome.state(identity, name) == state for identity in ids)

    def said(self) -> str:
        """The end of what the workers said."""
        return "\n".join(self.run.output.read_text().splitlines()[-30:])


DATA = orjson.dumps({"amount_minor": 125_000, "currency": "PKR", "reference": "a payment of an ordinary length", "channel": "wallet"})


def now_ms() -> int:
    return time.time_ns() // 1_000_000
