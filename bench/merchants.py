"""Whom the delivery benchmarks deliver to, and what: merchants with a subscription each, their events, and a sink that answers them."""

import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import AF_INET, AF_UNSPEC, AddressFamily
from typing import NamedTuple

from aiohttp.abc import AbstractResolver, ResolveResult
from confluent_kafka import Producer

from bench.feed import FLUSH_S
from bench.ground import BenchmarkError, Ground
from schemas.event import Event
from schemas.events import encode_event
from streams.delivery.payload import LATEST, body_of
from streams.delivery.sealing import NONCE_BYTES, Keyring, new_secret
from streams.delivery.subscription import encoded
from streams.delivery.subscription_changes import NewSecret, Wanted, created, sealed
from tests.sink import Running, started
from topology import flow, topics

MERCHANTS = 100
SECRET_KEYS = "bench:" + "A" * 43 + "="
TYPE = "payin.success"
TOPICS = tuple(dict.fromkeys((*flow.DELIVER.reads, *flow.DELIVER.tables, *flow.DELIVER.writes, *flow.LADDER.writes)))
DATA = b'{"amount_minor":125000,"currency":"PKR","note":"%b"}' % (b"n" * 300)


class Sink(NamedTuple):
    """A sink in a process of its own, with a name for each merchant, so that each endpoint has its own connections."""

    running: Running
    journal: Path
    authority: Path | None

    @property
    def pid(self) -> int:
        return self.running.process.pid

    def url(self, number: int, behaviour: str = "ok") -> str:
        scheme = "http" if self.authority is None else "https"
        return f"{scheme}://m{number}.sink.localhost:{self.running.port}/{behaviour}/m{number}"

    def context(self) -> ssl.SSLContext | None:
        """What a client is to trust."""
        return trusting(self.authority)


def trusting(authority: Path | None) -> ssl.SSLContext | None:
    return None if authority is None else ssl.create_default_context(cafile=str(authority))


class Loopback(AbstractResolver):
    """Every name is this machine, for not every system knows the names below localhost."""

    async def resolve(self, host: str, port: int = 0, family: AddressFamily = AF_UNSPEC) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        """Nothing is open."""


@contextmanager
def sink_of(ground: Ground, name: str, *, tls: bool = False, journal: bool = False) -> Iterator[Sink]:
    """Run a sink; it writes down what it received only where that is asked for, since that takes it half of its time."""
    written, authority = ground.folder / f"{name}.jsonl", ground.folder / f"{name}.pem"
    arguments = [*(["--authority", str(authority)] if tls else []), *(["--journal", str(written)] if journal else [])]
    with started(*arguments) as running:
        yield Sink(running, written, authority if tls else None)


def body() -> bytes:
    """What each of them is sent, byte for byte but for the event's id and time."""
    return body_of(event_id(0), TYPE, 1_700_000_000_000, DATA, LATEST, None)


def event_id(number: int) -> str:
    return f"evt_{number:020d}"


def merchant(number: int) -> str:
    return f"m{number}"


def subscribe(ground: Ground, sink: Sink, behaviours: Sequence[str] = ("ok",) * MERCHANTS) -> None:
    """Make a subscription for each merchant whose limits are none, so that nothing but the worker is measured."""
    now_ms, keyring = time.time_ns() // 1_000_000, Keyring.parse(SECRET_KEYS)
    producer = _producer(ground)
    for number, behaviour in enumerate(behaviours):
        name = f"sub_{number}"
        secret = NewSecret(f"sec_{number}", "hmac-sha256", new_secret("hmac-sha256", number.to_bytes(32, "big")))
        wanted = Wanted(url=sink.url(number, behaviour), rate_per_s=10_000, burst=10_000, in_flight_max=1_000)
        kept = sealed(secret, name, keyring, number.to_bytes(NONCE_BYTES, "big"), now_ms)
        fields = created(name, merchant(number), wanted, kept, now_ms, allow_loopback=True, disabled=False)
        producer.produce(ground.name(topics.SUBSCRIPTIONS), encoded(fields), name)
    flush(producer, ground.name(topics.SUBSCRIPTIONS))


class Events:
    """Publishes events as a producer of the company would: by merchant, with CloudEvents headers."""

    def __init__(self, ground: Ground) -> None:
        self._topic = ground.name(topics.EVENTS)
        self._producer = _producer(ground)

    def publish(self, number: int, merchant_number: int) -> None:
        """The number is in the event's id, and so in the header `webhook-id` of what the merchant receives."""
        name = merchant(merchant_number)
        event = Event(id=event_id(number), type=TYPE, source="bench", merchant=name, time_ms=time.time_ns() // 1_000_000, data=DATA)
        value, headers = encode_event(event)
        while True:
            try:
                self._producer.produce(self._topic, value, name, headers=list(headers))
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def flush(self) -> None:
        flush(self._producer, self._topic)


def _producer(ground: Ground) -> Producer:
    return Producer(
        {
            "bootstrap.servers": ground.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
        }
    )


def flush(producer: Producer, topic: str) -> None:
    if left := producer.flush(FLUSH_S):
        raise BenchmarkError(f"filling {topic}: {left} records were not taken in {FLUSH_S} s. Is the broker well?")
