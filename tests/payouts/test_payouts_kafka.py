"""Payouts on real Kafka, with a bank behind real sockets that behaves in every way, while a worker is killed."""

import asyncio
import itertools
import json
import os
import signal
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
from confluent_kafka import Producer

import schemas
from streams.payouts.audit import Audit
from streams.payouts.channels.demo import Behaviour, DemoChannel
from streams.payouts.payout import ENDED
from tests.hookline_run import HooklineRun
from tests.log.clients import read_to_end
from tests.payouts.shards import BENEFICIARY, command, submit
from topology import topics
from topology.broker import Broker
from topology.topics import Topic

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

MERCHANTS, PAYOUTS, PARTITIONS, PATIENCE_S = 5, 150, 2, 150
FUNDED, AMOUNT = 100_000, 1_000
SETTINGS = {"HOOKLINE_TIME_SCALE": "200", "HOOKLINE_PAYOUT_FEES": '{"mobile_wallet/PKR": {"basis_points": 100}}'}
ALL_BEHAVIOURS: tuple[Behaviour, ...] = get_args(Behaviour)


def behaves(key: str) -> Behaviour:
    """Every way of behaving, by the payout's id."""
    return ALL_BEHAVIOURS[zlib.crc32(key.encode()) % len(ALL_BEHAVIOURS)]


class Ground:
    """A cluster with topics of its own, as a caller and an auditor see it."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self.kafka, self.prefix = {"bootstrap.servers": broker.bootstrap_servers}, prefix
        self.producer = Producer({**self.kafka, "partitioner": "murmur2_random"})

    def send(self, commands: Iterable[dict[str, Any]]) -> None:
        for fields in commands:
            value = schemas.encode(schemas.PAYOUT_COMMAND, fields)
            self.producer.produce(self.prefix + topics.PAYOUT_COMMANDS.name, value, fields["merchant"].encode())
        assert self.producer.flush(30) == 0

    def read(self, topic: Topic, schema: schemas.Schema) -> list[dict[str, Any]]:
        return [schemas.decode(value, schema) for _, value in read_to_end(self.kafka, self.prefix + topic.name, PARTITIONS)]

    def statuses(self) -> dict[str, dict[str, Any]]:
        return {f"{each['merchant']}/{each['payout_id']}": each for each in self.read(topics.PAYOUT_STATUS, schemas.PAYOUT_STATUS)}

    async def wait_for(self, states: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Until every payout is in one of these."""
        wanted, deadline_s = set(states), asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            found = await asyncio.to_thread(self.statuses)
            if len(found) == PAYOUTS and all(each["state"] in wanted for each in found.values()):
                return found
            assert asyncio.get_running_loop().time() < deadline_s, Counter(each["state"] for each in found.values())
            await asyncio.sleep(0.3)


def opening() -> list[dict[str, Any]]:
    """Each merchant has a beneficiary and money."""
    return [
        each
        for merchant in (f"m{number}" for number in range(MERCHANTS))
        for each in (
            command("REGISTER_BENEFICIARY", {**BENEFICIARY, "merchant": merchant}, merchant),
            command("FUND_ACCOUNT", {"transfer_id": "t", "amount_minor": FUNDED, "currency": "PKR"}, merchant),
        )
    ]


def asked() -> list[dict[str, Any]]:
    """Every tenth of them twice."""
    commands = [{**submit(number), "merchant": f"m{number % MERCHANTS}"} for number in range(PAYOUTS)]
    return [again for number, each in enumerate(commands) for again in itertools.repeat(each, 2 if number % 10 == 0 else 1)]


async def test_every_payout_ends_or_waits_for_a_person_and_the_bank_s_record_is_the_ledger_s(
    broker: Broker, prefix: str, tmp_path: Path
) -> None:
    demo, ground = DemoChannel(behaves=behaves, slow_s=0.3), Ground(broker, prefix)
    async with demo.serving() as url:
        channel = {"url": url, "key_id": "us", "secret": "demo", "timeout_s": 3}
        others = {**SETTINGS, "HOOKLINE_CHANNELS": json.dumps({"mobile_wallet": channel})}
        running = HooklineRun(
            broker.bootstrap_servers, prefix, tmp_path, "--role", "payouts,channels,ladder", "--apply-topology", "--workers", "2", **others
        )
        try:
            await asyncio.to_thread(running.wait_for, "Hookline is ready")
            ground.send(opening())
            commands = asked()
            ground.send(commands[: len(commands) // 2])
            os.kill(int((tmp_path / "state" / "worker-1" / "pid").read_text()), signal.SIGKILL)
            ground.send(commands[len(commands) // 2 :])

            found = await ground.wait_for([*ENDED, "STUCK"])
            stuck = [key for key, each in found.items() if each["state"] == "STUCK"]
            assert {behaves(key) for key in stuck} == {"never final"}
            ground.send(resolved(key, "SUCCESS" if place % 2 else "FAILED") for place, key in enumerate(stuck))
            for place, key in enumerate(stuck):  # the bank does as the person was told
                demo.payments[key].status = "success" if place % 2 else "failed"
            found = await ground.wait_for(ENDED)
        finally:
            if running.process.poll() is None:
                assert await asyncio.to_thread(running.stop) == 0
    check(ground, found, demo)


def resolved(key: str, status: str) -> dict[str, Any]:
    merchant, _, payout_id = key.partition("/")
    return command("RESOLVE", {"payout_id": payout_id, "status": status, "resolved_by": "ann", "notes": "phoned"}, merchant)


def check(ground: Ground, found: dict[str, dict[str, Any]], demo: DemoChannel) -> None:
    audit = Audit()
    for entry in ground.read(topics.LEDGER_ENTRIES, schemas.LEDGER_TRANSFER):
        audit.take(entry)
    assert audit.findings() == [] and not any(audit.pending.values())

    succeeded = {key: each["net_minor"] for key, each in found.items() if each["state"] == "SUCCESS"}
    assert demo.paid() == succeeded and set(succeeded.values()) == {990}
    assert demo.forged == 0
    settled = sum(balance for account, balance in audit.balances.items() if account.endswith("/settled"))
    available = sum(balance for account, balance in audit.balances.items() if account.endswith("/available"))
    assert (settled, available) == (990 * len(succeeded), MERCHANTS * FUNDED - AMOUNT * len(succeeded))

    ends = ("payout.success", "payout.failed")
    told = [event for event in ground.read(topics.EVENTS, schemas.EVENT) if event["type"] in ends]
    assert Counter(f"{event['merchant']}/{event['resource']}" for event in told) == Counter(dict.fromkeys(found, 1))
    assert ground.read(topics.DLQ, schemas.DEAD_LETTER) == []
