"""What the benchmarks of payouts stand on: topics, merchants with money, commands, and a coordinator beside channels that pay at once."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer

import schemas
from bench.committed import Group
from bench.feed import FLUSH_S
from bench.ground import BenchmarkError, Ground, Process
from topology import flow, topics

MERCHANTS = 100
OPENING = 2 * MERCHANTS
GROUP = f"hookline-{flow.PAYOUTS.name}"
READY_TIMEOUT_S = 60
AMOUNT, CURRENCY, CHANNEL = 1_000, "PKR", "mobile_wallet"
FUNDED = 10**12
TOPICS = tuple(
    dict.fromkeys(
        (
            *flow.PAYOUTS.reads, *flow.PAYOUTS.tables, *flow.PAYOUTS.writes, *flow.CHANNELS.reads, *flow.CHANNELS.writes,
            topics.CHANGELOG_PAYOUTS, topics.CHANGELOG_CHANNELS,
        )
    )
)  # fmt: skip


def command(merchant: str, kind: str, body: dict[str, Any], number: int) -> tuple[bytes, bytes]:
    """A command's key and value."""
    now_ms = time.time_ns() // 1_000_000
    fields = {"id": f"c{number}", "merchant": merchant, "kind": kind, "issued_ms": now_ms, kind.lower(): body}
    return merchant.encode(), schemas.encode(schemas.PAYOUT_COMMAND, fields)


def opening() -> Iterator[tuple[bytes, bytes]]:
    """Each merchant has a beneficiary and money."""
    for number in range(MERCHANTS):
        merchant = f"m{number}"
        beneficiary = {
            "id": "b1", "merchant": merchant, "name": "Aisha", "channel": CHANNEL, "account": "03001234567", "state": "ACTIVE",
            "created_ms": 0, "updated_ms": 0,
        }  # fmt: skip
        yield command(merchant, "REGISTER_BENEFICIARY", beneficiary, 2 * number)
        yield command(merchant, "FUND_ACCOUNT", {"transfer_id": "t", "amount_minor": FUNDED, "currency": CURRENCY}, 2 * number + 1)


def submission(number: int) -> tuple[bytes, bytes]:
    """One payout; the merchants take turns."""
    body = {
        "payout_id": f"p{number}", "idempotency_key": f"k{number}", "beneficiary_id": "b1", "amount_minor": AMOUNT, "currency": CURRENCY,
        "channel": CHANNEL, "metadata": {"order": f"order-{number}"},
    }  # fmt: skip
    return command(f"m{number % MERCHANTS}", "SUBMIT", body, OPENING + number)


class Commands:
    """A caller's producer."""

    def __init__(self, ground: Ground, **others: Any) -> None:
        self._topic = ground.name(topics.PAYOUT_COMMANDS)
        usual = {"enable.idempotence": True, "partitioner": "murmur2_random", "queue.buffering.max.messages": 1_000_000}
        self._producer = Producer({"bootstrap.servers": ground.bootstrap, **usual, **others})

    def send(self, commands: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in commands:
            self._producer.produce(self._topic, value, key)
            self._producer.poll(0)
        if left := self._producer.flush(FLUSH_S):
            raise BenchmarkError(f"writing to {self._topic}: {left} commands were not taken in {FLUSH_S} s. Is the broker well?")


@contextmanager
def workers(ground: Ground) -> Iterator[list[Process]]:
    """One coordinator, and channels in a process of their own."""
    coordinator = ("--folder", str(ground.folder / "payouts"), "--role", flow.PAYOUTS.name)
    channels = ("--folder", str(ground.folder / "channels"), "--role", flow.CHANNELS.name)
    with (
        ground.process("payouts", "bench.payouts_worker", *coordinator) as first,
        ground.process("channels", "bench.payouts_worker", *channels) as second,
    ):
        yield [first, second]


def opened(ground: Ground) -> Group:
    """Make the topics and open the accounts. The coordinator's group, as it gets on with commands."""
    ground.make(TOPICS)
    Commands(ground).send(opening())
    return Group(ground, ground.prefix + GROUP, ground.name(topics.PAYOUT_COMMANDS))


def wait_until_open(group: Group, running: list[Process]) -> None:
    """Until every account is."""
    deadline_s = time.perf_counter() + READY_TIMEOUT_S
    while group.see().records < OPENING:
        for process in running:
            process.check()
        if time.perf_counter() > deadline_s:
            raise BenchmarkError(f"opening {MERCHANTS} accounts took more than {READY_TIMEOUT_S} s. Log: {running[0].log}")
        time.sleep(0.05)
