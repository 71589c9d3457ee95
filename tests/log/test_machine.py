"""The machine on the simulated log: what happens to records that cannot be handled and to too many of them."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streams.errors import Fatal, MalformedRecord, PositionLost
from streams.log.machine import RECORDS_OF_ALL_MAX, TURN_EFFECTS, Limits
from streams.log.offsets import unpack
from streams.log.records import NOTHING, Outcome, Record, Work, Write
from streams.log.simulated.clock import simulate
from streams.log.simulated.cluster import Cluster
from streams.log.simulated.log import READ_MAX, Faults
from streams.log.state import State
from tests.log.conftest import LogLines
from tests.log.one_worker import WORKING, Disk, agent, conclude_work, one_worker, pass_on, perform_work, plan_work, refuse
from tests.pipelines import IN, OUT, POSTED, REFUSED
from topology.topics import Topic

SMALL = Topic("small", "Takes less than the machine allows.", "key", None, record_bytes_max=1_000)
UNDECLARED = Topic("undeclared", "Nobody said that it is written.", "key", None)
POISON = b"poison"


def spoilt(function: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    """The same function, but it fails for poison."""

    def check(subject: Any) -> None:
        if (subject.value if isinstance(subject, Record) else subject[1]) == POISON:
            raise error

    async def spoilt_perform(subject: Any, *others: Any) -> Any:
        check(subject)
        return await function(subject, *others)

    def spoilt_rule(subject: Any, *others: Any) -> Any:
        check(subject)
        return function(subject, *others)

    return spoilt_perform if asyncio.iscoroutinefunction(function) else spoilt_rule


# What cannot be handled


@pytest.mark.parametrize(
    ("stage", "function"),
    [("plan", plan_work), ("perform", perform_work), ("conclude", conclude_work)],
    ids=["plan", "perform", "conclude"],
)
@pytest.mark.parametrize(
    ("error", "reason"),
    [(ValueError("odd"), b"ValueError: odd"), (MalformedRecord("no such schema"), b"no such schema")],
    ids=["a bug", "malformed"],
)
def test_a_record_that_fails_is_refused_by_reference_and_its_partition_goes_on(
    stage: str, function: Callable[..., Any], error: Exception, reason: bytes
) -> None:
    async def program() -> None:
        async with one_worker(
            agent(**{"plan": plan_work, "perform": perform_work, "conclude": conclude_work, stage: spoilt(function, error)})
        ) as worker:
            worker.world.release()
            worker.send(b"before", POISON, b"after")
            await worker.until(lambda: worker.offset() == 3)
            assert worker.refused() == {b"in-0@1": reason}
            assert worker.values(OUT) == [b"before", b"after"]

    simulate(program())


def test_what_an_effect_planned_before_it_failed_is_committed_with_its_refusal() -> None:
    def plan(record: Record, state: State, now_ms: int) -> list[Work[Any]]:
        return [Work((record.key, record.value), [(b"tried", record.value)])]

    async def program() -> None:
        async with one_worker(agent(plan=plan, perform=spoilt(perform_work, ValueError("odd")), conclude=conclude_work)) as worker:
            worker.send(POISON)
            await worker.until(lambda: worker.offset() == 1)
            assert worker.state() == {b"tried": POISON}
            assert len(worker.refused()) == 1

    simulate(program())


@pytest.mark.parametrize("stage", ["plan", "perform", "conclude"])
def test_a_fatal_error_is_no_fault_of_the_record_and_ends_the_process(stage: str) -> None:
    """A damaged store, say, or a missing key: dead-lettering every record for it would lose them all."""
    stages: dict[str, Callable[..., Any]] = {"plan": plan_work, "perform": perform_work, "conclude": conclude_work}

    async def program() -> None:
        spoilt_stage = {stage: spoilt(stages[stage], Fatal("the store is damaged"))}
        async with one_worker(agent(**{**stages, **spoilt_stage})) as worker:
            worker.world.release()
            worker.send(b"before", POISON, b"after")
            with pytest.raises(Fatal, match="the store is damaged"):
                await worker.until_ended()
            assert worker.refused() == {}

    simulate(program())


@pytest.mark.parametrize("after_ms", range(0, 40, 2))
def test_a_fatal_error_ends_the_process_also_when_it_comes_just_after_a_commit_and_nothing_follows(after_ms: int) -> None:
    async def perform_badly(task: tuple[bytes, bytes], world: Any) -> bytes:
        if task[1] == POISON:
            await asyncio.sleep(after_ms / 1000)
            raise Fatal("no key to sign with")
        return task[1]

    async def program() -> None:
        async with one_worker(agent(plan=plan_work, perform=perform_badly, conclude=conclude_work)) as worker:
            worker.send(b"before", POISON)
            with pytest.raises(Fatal, match="no key to sign with"):
                await worker.until_ended()

    simulate(program())


def test_a_refusal_that_fails_itself_ends_the_process() -> None:
    """Nothing else can be done with the record; left in flight it would hold up its partition's commits without a word."""

    def cannot_refuse(record: Record, reason: str, now_ms: int) -> Outcome:
        raise ValueError("a bug in poison")

    async def program() -> None:
        async with one_worker(agent(plan=spoilt(pass_on, ValueError("odd")), poison=cannot_refuse)) as worker:
            worker.send(b"before", POISON, b"after")
            with pytest.raises(ValueError, match="a bug in poison"):
                await worker.until_ended()

    simulate(program())


# What cannot be written


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (
            Outcome([Write(OUT, b"k", b"fine"), Write(OUT, b"k", bytes(2_000))]),
            b"record too large: 2101 bytes for out, at most 2000 are taken",
        ),
        (Outcome([Write(OUT, b"k", b"", [("header", bytes(2_000))])]), b"record too large"),
        (Outcome([Write(OUT, b"k", b"fine")], [(b"k", bytes(2_000))]), b"state too large: 2000 bytes"),
        (Outcome([Write(UNDECLARED, b"k", b"v")]), b"agent tested does not declare that it writes undeclared"),
        (Outcome((), [(b"\x00born/in", b"")]), b"must not begin with a zero byte"),
    ],
    ids=["a record too large", "headers too large", "state too large", "a topic not declared", "a key of the machine's own"],
)
@pytest.mark.parametrize("stage", ["plan", "conclude"])
def test_an_outcome_that_can_never_be_written_is_refused_before_anyone_has_seen_it(stage: str, outcome: Outcome, reason: bytes) -> None:
    def decide(record_or_task: Any, *_: Any) -> Outcome:
        name = record_or_task.value if isinstance(record_or_task, Record) else record_or_task[1]
        return outcome if name == POISON else Outcome([Write(OUT, b"k", name)])

    stages = {"plan": decide} if stage == "plan" else {"plan": plan_work, "perform": perform_work, "conclude": decide}

    async def program() -> None:
        async with one_worker(agent(**stages), limits=Limits(record_bytes_max=2_000)) as worker:
            worker.world.release()
            worker.send(b"before", POISON, b"after")
            await worker.until(lambda: worker.offset() == 3)
            assert worker.values(OUT) == [b"before", b"after"]
            assert worker.state() == {}
            assert list(worker.refused()) == [b"in-0@1"]
            assert reason in worker.refused()[b"in-0@1"]
            assert worker.log.asked["probe"] == 0

    simulate(program())


@pytest.mark.parametrize(
    ("change", "reason"),
    [((b"k", bytes(2_000)), b"state too large"), ((b"\x00born/in", b""), b"must not begin with a zero byte")],
    ids=["too large", "not its own"],
)
def test_what_a_plan_changes_is_checked_like_an_outcome(change: tuple[bytes, bytes], reason: bytes) -> None:
    """Found at the broker only, it has no record to blame, and the worker would end over it again and again."""

    def plan(record: Record, state: State, now_ms: int) -> list[Work[Any]]:
        return [Work((record.key, record.value), [change] if record.value == POISON else [])]

    async def program() -> None:
        async with one_worker(
            agent(plan=plan, perform=perform_work, conclude=conclude_work), limits=Limits(record_bytes_max=2_000)
        ) as worker:
            worker.world.release()
            worker.send(b"before", POISON, b"after")
            await worker.until(lambda: worker.offset() == 3)
            assert worker.state() == {}
            assert worker.values(OUT) == [b"before", b"after"]
            assert reason in worker.refused()[b"in-0@1"]

    simulate(program())


@pytest.mark.parametrize("offenders", [{0}, {17}, {49}, {3, 4, 30}, set(range(50))], ids=str)
def test_a_record_that_the_broker_refuses_is_found_and_replaced_by_its_reference_and_all_others_are_committed(offenders: set[int]) -> None:
    def plan(record: Record, state: State, now_ms: int) -> Outcome:
        size = 2_000 if int(record.value or b"") in offenders else 10
        return Outcome([Write(OUT, record.key, record.value), Write(SMALL, record.value, bytes(size))], [(record.value or b"", b"done")])

    async def program() -> None:
        async with one_worker(agent(plan=plan, writes=[OUT, REFUSED, SMALL])) as worker:
            names = [b"%d" % number for number in range(50)]
            worker.send(*names)
            await worker.until(lambda: worker.offset() == 50)
            assert worker.values(OUT) == names
            assert set(worker.state()) == set(names)
            assert set(worker.refused()) == {b"in-0@%d" % number for number in offenders}
            assert {int(entry.key or b"") for entry in worker.committed(SMALL)} == set(range(50)) - offenders
            assert all(b"refuses a record of 21" in reason for reason in worker.refused().values())

    simulate(program())


def test_a_broker_that_refuses_a_transaction_without_records_ends_the_process() -> None:
    async def program() -> None:
        async with one_worker(agent(plan=lambda record, state, now_ms: Outcome((), [(b"k", b"v")]), writes=[REFUSED])) as worker:
            worker.log.refuses_everything = True
            worker.send(b"any")
            with pytest.raises(Fatal, match="has no records to blame"):
                await worker.until_ended()

    simulate(program())


def test_when_none_of_the_records_is_to_blame_none_is_refused_in_its_place(log_lines: LogLines) -> None:
    """A changelog record too large, say: halving finds nothing among the records, and must not dead-letter an innocent one."""

    async def program() -> None:
        async with one_worker(agent()) as worker:
            worker.log.refuses_everything = True
            worker.send(b"innocent", b"innocent too")
            with pytest.raises(Fatal):
                await worker.until_ended()

    simulate(program())
    assert [line["record"] for line in log_lines if line["event"] == "record.unwritable"] == []


# Fan-out


def test_each_unit_of_a_record_commits_as_it_finishes_and_the_offset_with_the_last() -> None:
    def plan(record: Record, state: State, now_ms: int) -> Sequence[Work[Any]]:
        wanted = [record.value + b"/" + name for name in (b"a", b"b", b"c")] if record.value else []
        return [Work((record.key, name)) for name in wanted if state.get(name) is None]

    def conclude(task: tuple[bytes, bytes], result: bytes, state: State, now_ms: int) -> Outcome:
        return Outcome([Write(OUT, task[0], result)], [(result, b"done")])

    async def program() -> None:
        cluster, disk = Cluster(), Disk()
        async with one_worker(agent(plan=plan, perform=perform_work, conclude=conclude), cluster=cluster, disk=disk) as worker:
            worker.send(b"1", b"2")
            worker.world.release(b"1/b", b"2/a", b"2/b", b"2/c")
            await worker.until(lambda: len(worker.values(OUT)) == 4)
            await worker.until(lambda: worker.mark() is not None and unpack(worker.mark() or pytest.fail()) == (2, frozenset({0})))
            worker.world.release(b"1/c")
            await worker.until(lambda: len(worker.values(OUT)) == 5)
            await worker.until_quiet()
            assert worker.offset() == 0
        async with one_worker(agent(plan=plan, perform=perform_work, conclude=conclude), cluster=cluster, disk=disk) as again:
            again.world.release()
            await again.until(lambda: again.offset() == 2)
            assert dict(again.world.begun) == {b"1/a": 1}
            assert sorted(value or b"" for value in again.values(OUT)) == [b"1/a", b"1/b", b"1/c", b"2/a", b"2/b", b"2/c"]

    simulate(program())


def test_a_record_that_asks_for_nothing_is_done() -> None:
    async def program() -> None:
        async with one_worker(agent(plan=lambda record, state, now_ms: NOTHING if record.value == b"a" else [])) as worker:
            worker.send(b"a", b"b")
            await worker.until(lambda: worker.offset() == 2)

    simulate(program())


# Back pressure


@pytest.mark.parametrize(
    "limits", [Limits(in_flight_max=7, uncommitted_max=50), Limits(in_flight_max=800, uncommitted_max=20), Limits(inlet_bytes_max=1_000)]
)
def test_no_more_is_held_than_allowed_and_what_was_paused_is_resumed(limits: Limits) -> None:
    async def program() -> None:
        async with one_worker(WORKING, limits=limits, partitions=2) as worker:
            names = [b"%0100d" % number for number in range(300)]
            worker.send(*names)
            worker.send(b"beside", partition=1)
            worker.world.release(b"beside")
            await worker.until(lambda: worker.offset(1) == 1)
            await worker.until(lambda: worker.log.asked["pause"] == 1)
            await worker.until_quiet()
            held = worker.machine.shards[0].inlets[IN]
            assert held.records <= limits.uncommitted_max + READ_MAX
            assert held.bytes <= limits.inlet_bytes_max + READ_MAX * 100
            assert len(held.offsets.unfinished) <= limits.in_flight_max
            worker.world.release()
            await worker.until(lambda: worker.offset() == len(names))
            await worker.until_quiet()
            assert worker.world.in_work_max <= 2 * limits.in_flight_max
            assert worker.log.asked["resume"] == worker.log.asked["pause"]
            assert (held.records, held.bytes, held.working, held.paused) == (0, 0, 0, False)
            assert worker.world.begun.total() == len(names) + 1

    simulate(program())


def test_a_backlog_begins_more_only_when_it_has_heard_what_was_answered() -> None:
    in_work_max = 0

    async def perform(task: tuple[bytes, bytes], world: Any) -> bytes:
        nonlocal in_work_max
        world.in_work += 1
        in_work_max = max(in_work_max, world.in_work)
        await asyncio.sleep(0)  # as soon as an effect can be answered: in the event loop's next turn
        world.in_work -= 1
        return task[1]

    async def program() -> None:
        async with one_worker(agent(plan=plan_work, perform=perform, conclude=conclude_work)) as worker:
            worker.send(*(b"%d" % number for number in range(1_000)))
            await worker.until(lambda: worker.offset() == 1_000)
            assert in_work_max <= 3 * TURN_EFFECTS

    simulate(program())


def test_a_topic_with_more_shares_holds_more_and_an_agent_may_have_its_own_number_in_flight() -> None:
    async def program() -> None:
        uneven = replace(WORKING, reads=[IN, POSTED], in_flight_max=2_000, shares={IN: 19})
        async with one_worker(uneven, limits=Limits(uncommitted_max=3_000), partitions=2) as worker:
            for topic in (IN, POSTED):
                for number in range(4_000):
                    worker.cluster.append((topic.name, 0), b"k", b"%d" % number, (), worker.world.now_ms())
            await worker.until_quiet()
            inlets = worker.machine.shards[0].inlets
            assert inlets[IN].working == 2_000
            assert 3_000 <= inlets[IN].records <= 3_000 + READ_MAX
            assert RECORDS_OF_ALL_MAX // 40 <= inlets[POSTED].records <= RECORDS_OF_ALL_MAX // 40 + READ_MAX
            worker.world.release()
            await worker.until(lambda: len(worker.values(OUT)) == 8_000)

    simulate(program())


def test_while_the_broker_refuses_every_commit_memory_is_bounded_and_then_all_is_written_once() -> None:
    async def program() -> None:
        async with one_worker(agent(), limits=Limits(uncommitted_max=100)) as worker:
            worker.log.aborts_everything = True
            names = [b"%d" % number for number in range(1_000)]
            worker.send(*names)
            await worker.until(lambda: worker.log.asked["pause"] == 1)
            await asyncio.sleep(5)
            assert worker.machine.shards[0].inlets[IN].records <= 100 + READ_MAX
            assert worker.offset() == -1
            worker.log.aborts_everything = False
            await worker.until(lambda: worker.offset() == len(names))
            assert worker.values(OUT) == names

    simulate(program())


# Positions, and the end


def test_a_committed_offset_that_has_expired_stops_the_agent_and_sends_nothing_again() -> None:
    async def program() -> None:
        cluster, disk = Cluster(), Disk()
        async with one_worker(agent(), cluster=cluster, disk=disk) as worker:
            worker.send(b"once")
            await worker.until(lambda: worker.offset() == 1)
            worker.group.committed.clear()
        for files in (disk, Disk()):
            async with one_worker(agent(), cluster=cluster, disk=files) as again:
                with pytest.raises(PositionLost, match=r"in-0 has been read before, and its committed offset is gone.*offsets reset"):
                    await again.until_ended()
                assert again.values(OUT) == [b"once"]

    simulate(program())


def test_a_partition_never_read_starts_at_its_beginning_though_others_were() -> None:
    async def program() -> None:
        cluster = Cluster()
        async with one_worker(agent(), cluster=cluster, partitions=2) as worker:
            await worker.until(lambda: worker.offset(0) == worker.offset(1) == 0)
            worker.group.committed.pop((IN.name, 1))
            del cluster.partitions[worker.agent.changelog.name, 1]
        async with one_worker(agent(), cluster=cluster, partitions=2) as again:
            again.send(b"first", partition=1)
            await again.until(lambda: again.values(OUT, 1) == [b"first"])

    simulate(program())


def test_stop_finishes_and_commits_what_is_in_work_and_begins_nothing_new() -> None:
    async def program() -> None:
        async with one_worker(WORKING, limits=Limits(in_flight_max=2)) as worker:
            worker.send(b"a", b"b", b"c", b"d")
            await worker.until(lambda: worker.world.in_work == 2)
            stopping = asyncio.create_task(worker.machine.stop(drain_s=30))
            await asyncio.sleep(1)
            worker.world.release()
            await stopping
            assert worker.values(OUT) == [b"a", b"b"]
            assert worker.offset() == 2
            assert dict(worker.world.begun) == {b"a": 1, b"b": 1}
            assert worker.machine.shards == {}

    simulate(program())


def test_stop_waits_no_longer_than_told_for_an_effect_that_hangs() -> None:
    async def program() -> None:
        async with one_worker(WORKING) as worker:
            worker.send(b"hangs", b"done")
            worker.world.release(b"done")
            await worker.until(lambda: worker.world.begun.total() == 2)
            began_s = asyncio.get_running_loop().time()
            await worker.machine.stop(drain_s=4)
            assert asyncio.get_running_loop().time() - began_s < 5
            assert worker.values(OUT) == [b"done"]
            assert worker.offset() == 0

    simulate(program())


@pytest.mark.parametrize("touched", [False, True])
def test_a_shard_that_comes_back_keeps_its_work_only_if_nobody_committed_there_meanwhile(touched: bool) -> None:
    async def program() -> None:
        async with one_worker(WORKING) as worker:
            worker.send(b"done", b"slow", b"done too")
            worker.world.release(b"done", b"done too")
            await worker.until(lambda: worker.offset() == 1)
            if touched:
                mark = worker.mark()
                assert mark is not None
                worker.group.committed[IN.name, 0] = mark._replace(metadata=mark.metadata.replace("w.", "another.", 1))
            await worker.balance()
            worker.world.release()
            await worker.until(lambda: worker.offset() == 3)
            assert worker.world.begun[b"slow"] == 1 + touched
            assert sorted(value or b"" for value in worker.values(OUT)) == [b"done", b"done too", b"slow"]

    simulate(program())


def test_what_was_planned_but_not_committed_in_a_lost_shard_is_done_again_and_its_late_finish_touches_nothing() -> None:
    async def program() -> None:
        async with one_worker(WORKING) as worker:
            worker.send(b"slow")
            await worker.until(lambda: worker.world.begun[b"slow"] == 1 and worker.mark() is not None)
            shard = worker.machine.shards[0]
            worker.group.committed[IN.name, 0] = (worker.mark() or pytest.fail())._replace(metadata="reset by hand")
            await worker.balance()
            assert not shard.alive
            worker.world.release()
            await worker.until(lambda: worker.offset() == 1)
            assert worker.values(OUT) == [b"slow"]
            assert shard.finished == []

    simulate(program())


def test_under_aborts_and_lost_answers_everything_is_written_once_and_in_order() -> None:
    async def program(seed: int) -> None:
        async with one_worker(agent(), faults=Faults(abort=0.4, lost_answer=0.4), seed=seed) as worker:
            names = [b"%d" % number for number in range(500)]
            chance = random.Random(seed)
            for name in names:
                worker.send(name)
                await asyncio.sleep(chance.expovariate(1_000))
            await worker.until(lambda: worker.offset() == len(names))
            assert worker.values(OUT) == names

    for seed in range(5):
        simulate(program(seed))


def test_a_refused_record_is_told_in_the_log_with_where_it_is(log_lines: LogLines) -> None:
    async def program() -> None:
        async with one_worker(agent(plan=spoilt(pass_on, ValueError("odd")), poison=refuse)) as worker:
            worker.send(POISON)
            await worker.until(lambda: worker.offset() == 1)

    simulate(program())
    assert {"record": "in-0@0", "reason": "ValueError: odd"}.items() <= next(
        line for line in log_lines if line["event"] == "record.poisoned"
    ).items()
