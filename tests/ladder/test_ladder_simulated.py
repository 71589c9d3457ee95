"""The ladder agent on the simulated log: waits of any length, crashes on the way, and records that it cannot take."""

import asyncio
import os
import random

import pytest

import schemas
from streams.ladder.agent import ladder_agent
from streams.ladder.handler import DUE, RETURN
from streams.ladder.rules import UNSCALED
from streams.log.machine import Limits
from streams.log.simulated.clock import simulate
from streams.log.simulated.log import Faults
from streams.log.simulated.process import Process, System
from tests.ladder.clocks import HOPS_MAX, LATE_MS_MAX, RECORDS, run_waits
from topology.ladder import RUNGS
from topology.topics import DELIVERIES, DLQ

SEEDS = int(os.environ.get("HOOKLINE_SEEDS", "20"))
START_MS = 1_700_000_000_000


class Clock:
    def __init__(self, process: Process) -> None:
        self._process = process

    def now_ms(self) -> int:
        return START_MS + int(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._process.gate.passed()


def new_system(seed: int) -> System:
    return System(ladder_agent(UNSCALED), 2, 2, seed, Clock, Faults(abort=0.1), Limits(keep_every_s=60, note_ends_every_s=3_600))


def put(system: System, name: bytes, due_in_ms: int) -> None:
    headers = [(DUE, str(START_MS + due_in_ms).encode()), (RETURN, DELIVERIES.name.encode())]
    system.cluster.append((RUNGS[0].topic.name, 0), name, b"value of " + name, headers, START_MS)


def test_each_record_comes_back_once_and_never_early_though_workers_die() -> None:
    async def program() -> None:
        chance = random.Random(5)
        system = new_system(5)
        due_ms = {f"r{n}".encode(): chance.randrange(1, 200 * 3_600_000) for n in range(40)}
        for name, due_in_ms in due_ms.items():
            put(system, name, due_in_ms)
        for host in system.hosts:
            host.start()
        for _ in range(20):
            await asyncio.sleep(chance.uniform(1, 12 * 3_600))
            system.kill(chance.choice(system.hosts), chance.uniform(0.1, 20))
        await asyncio.sleep(210 * 3_600)

        back = list(system.cluster.read((DELIVERIES.name, 0), 0, 10_000))
        assert sorted(entry.key or b"" for entry in back) == sorted(due_ms)
        assert all(entry.timestamp_ms >= START_MS + due_ms[entry.key or b""] for entry in back)
        assert all(entry.value == b"value of " + (entry.key or b"") for entry in back)

    simulate(program())


def test_a_record_without_a_due_time_goes_to_the_dlq_with_its_reason_and_stops_nothing() -> None:
    async def program() -> None:
        system = new_system(1)
        system.cluster.append((RUNGS[0].topic.name, 0), b"bad", b"bytes", [(RETURN, b"deliveries")], START_MS)
        system.cluster.append((RUNGS[0].topic.name, 0), b"lost", b"bytes", [(DUE, b"5"), (RETURN, b"nowhere")], START_MS)
        put(system, b"good", 1_000)
        for host in system.hosts:
            host.start()
        await asyncio.sleep(30)

        letters = [schemas.decode(entry.value or b"", schemas.DEAD_LETTER) for entry in system.cluster.read((DLQ.name, 0), 0, 100)]
        assert [letter["origin"]["offset"] for letter in letters] == [0, 1]
        assert DUE in letters[0]["detail"] and "nowhere" in letters[1]["detail"]
        assert letters[0]["payload"] == b"bytes"
        assert [entry.key for entry in system.cluster.read((DELIVERIES.name, 0), 0, 100)] == [b"good"]

    simulate(program())


@pytest.mark.parametrize(("ahead", "late_ms_max"), [(2_000, 500), (12_000, 5_500)], ids=["within the heads", "behind the heads"])
def test_what_is_due_sooner_waits_behind_others_only_where_they_are_more_than_the_heads_and_never_for_longer_than_the_shortest_rung(
    ahead: int, late_ms_max: int
) -> None:
    async def program() -> None:
        system = System(ladder_agent(UNSCALED), 1, 1, 3, Clock, Faults(), Limits(keep_every_s=60))
        for number in range(ahead):
            put(system, b"later %d" % number, 4_900)
        for number in range(20):
            put(system, b"sooner %d" % number, 1_500)
        system.hosts[0].start()
        await asyncio.sleep(30)

        back = {entry.key or b"": entry.timestamp_ms - START_MS for entry in system.cluster.read((DELIVERIES.name, 0), 0, 10**6)}
        sooner = [back_ms - 1_500 for name, back_ms in back.items() if name.startswith(b"sooner")]
        assert len(back) == ahead + 20
        assert len(sooner) == 20 and min(sooner) >= 0
        assert max(sooner) <= late_ms_max

    simulate(program())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_step_of_a_clock_lets_a_record_go_early_holds_it_up_loses_it_or_makes_it_spin(seed: int) -> None:
    waits = run_waits(seed)

    assert waits.early == []
    assert waits.back == dict.fromkeys(waits.due_ms, 1)
    assert waits.late_ms_most <= LATE_MS_MAX
    assert waits.hops <= HOPS_MAX * RECORDS
