"""What the machine does without a record: an agent's own turn, old state forgotten, and the ends of idle logs noted."""

import asyncio

import pytest

from streams.errors import Fatal
from streams.log.machine import Limits
from streams.log.records import NOTHING, Outcome, Record, Write
from streams.log.simulated.clock import simulate
from streams.log.simulated.cluster import Cluster
from streams.log.state import State
from tests.log.one_worker import WORKING, Disk, OneWorker, agent, one_worker
from tests.pipelines import IN, OUT

KEPT = Limits(keep_every_s=1, note_ends_every_s=10)


# An agent's own turn


def remember(record: Record, state: State, now_ms: int) -> Outcome:
    return Outcome((), [(b"w/" + (record.value or b""), b"waits")])


def release_waiting(state: State, now_ms: int) -> Outcome:
    waiting = [key for key, _ in state.scan(b"w/")]
    if not waiting:
        return NOTHING
    return Outcome([Write(OUT, key, key[2:]) for key in waiting], [(key, None) for key in waiting])


def test_an_agent_acts_on_its_state_without_a_record_and_does_it_once() -> None:
    async def program() -> None:
        async with one_worker(agent(plan=remember, tick=release_waiting), limits=KEPT) as worker:
            worker.send(b"a", b"b")
            await worker.until(lambda: worker.values(OUT) == [b"a", b"b"])
            await worker.until_quiet()
            assert worker.values(OUT) == [b"a", b"b"]
            assert worker.state() == {b"w/a": None, b"w/b": None}

    simulate(program())


def test_what_an_agent_does_without_a_record_is_planned_on_what_is_finished_though_nothing_is_committed() -> None:
    async def program() -> None:
        async with one_worker(agent(plan=remember, tick=release_waiting), limits=KEPT) as worker:
            worker.log.aborts_everything = True
            worker.send(b"a")
            await asyncio.sleep(5)
            worker.log.aborts_everything = False
            await worker.until(lambda: worker.offset() == 1)
            await worker.until_quiet()
            assert worker.values(OUT) == [b"a"]

    simulate(program())


def test_an_agent_whose_own_turn_fails_ends_the_process() -> None:
    def fail(state: State, now_ms: int) -> Outcome:
        raise ValueError("its state is not what it thought")

    async def program() -> None:
        async with one_worker(agent(tick=fail), limits=KEPT) as worker:
            with pytest.raises(ValueError, match="its state"):
                await worker.until_ended()

    simulate(program())


def test_an_agent_that_asks_in_its_own_turn_for_what_can_never_be_written_ends_the_process() -> None:
    async def program() -> None:
        async with one_worker(agent(tick=lambda state, now_ms: Outcome([Write(IN, b"k", b"v")])), limits=KEPT) as worker:
            with pytest.raises(Fatal, match="without a record"):
                await worker.until_ended()

    simulate(program())


# The ends of idle logs


def leave_markers(worker: OneWorker, count: int) -> None:
    """Transactions of someone else that came to nothing: they take offsets, and hold no record."""
    cluster, place = worker.cluster, (IN.name, 0)
    for _ in range(count):
        epoch = cluster.begin_epoch("someone")
        cluster.append(place, b"k", b"aborted", (), 0, cluster.transaction("someone", epoch))
        cluster.end_transaction("someone", epoch, commit=False)


def test_the_end_of_an_idle_log_is_committed_so_that_it_outlives_retention() -> None:
    async def program() -> None:
        async with one_worker(agent(), limits=KEPT) as worker:
            worker.send(b"once")
            await worker.until(lambda: worker.offset() == 1)
            leave_markers(worker, 3)
            end = worker.cluster.end((IN.name, 0))
            assert end > 1
            await worker.until(lambda: worker.offset() == end)
            await worker.until_quiet()
            commits = len(worker.log.written)
            await asyncio.sleep(100)
            assert len(worker.log.written) == commits, "an end that was noted is not noted again"
            worker.send(b"more")
            await worker.until(lambda: worker.values(OUT) == [b"once", b"more"])

    simulate(program())


def test_the_end_is_not_committed_past_a_record_that_is_still_in_work() -> None:
    async def program() -> None:
        cluster, disk = Cluster(), Disk()
        async with one_worker(WORKING, cluster=cluster, disk=disk, limits=KEPT) as worker:
            worker.send(b"hangs", b"quick")
            worker.world.release(b"quick")
            leave_markers(worker, 3)
            await worker.until(lambda: worker.values(OUT) == [b"quick"])
            await asyncio.sleep(30)
            assert worker.offset() == 0
        async with one_worker(WORKING, cluster=cluster, disk=disk, limits=KEPT) as again:
            again.world.release()
            end = cluster.end((IN.name, 0))
            await again.until(lambda: again.offset() == end)
            assert again.values(OUT) == [b"quick", b"hangs"]

    simulate(program())


# State that is over its age


def test_what_has_expired_is_forgotten_with_tombstones_and_the_rest_stays() -> None:
    def plan(record: Record, state: State, now_ms: int) -> Outcome:
        return Outcome((), [(record.value or b"", b"%d" % (now_ms + (1_000 if record.value == b"brief" else 3_600_000)))])

    async def program() -> None:
        disk = Disk()
        async with one_worker(agent(plan=plan, expires_ms=lambda key, value: int(value)), disk=disk) as worker:
            worker.send(b"brief", b"long")
            await worker.until(lambda: worker.offset() == 2)
            await worker.until(lambda: worker.state()[b"brief"] is None)
            assert worker.state()[b"long"] is not None
            await worker.until(lambda: b"brief" not in disk[0].values)
            assert disk[0].values[b"\x00born/in"] == b"1"
            tombstones = len(worker.committed(worker.agent.changelog))
            await worker.until_quiet()
            assert len(worker.committed(worker.agent.changelog)) == tombstones

    simulate(program())


def test_what_expires_while_it_is_renewed_is_not_forgotten() -> None:
    """The stored value is over its age; the newer one is finished and waits for its commit."""

    def plan(record: Record, state: State, now_ms: int) -> Outcome:
        return Outcome((), [(b"only", b"%d" % (now_ms + int(record.value or b"")))])

    async def program() -> None:
        async with one_worker(agent(plan=plan, expires_ms=lambda key, value: int(value))) as worker:
            worker.send(b"5000")
            await worker.until(lambda: worker.offset() == 1)
            worker.log.aborts_everything = True
            worker.send(b"3600000")
            await asyncio.sleep(10)
            worker.log.aborts_everything = False
            await worker.until(lambda: worker.offset() == 2)
            await worker.until_quiet()
            assert worker.state()[b"only"] is not None

    simulate(program())
