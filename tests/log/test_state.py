"""The state as plan and conclude see it, and that nothing is committed which was derived from what is not."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.log.offsets import Mark, Offsets
from streams.log.records import Change, Outcome, Record, Work, Write
from streams.log.shard import Inlet, Shard
from streams.log.simulated.clock import simulate
from streams.log.simulated.log import Faults, SimulatedStore
from streams.log.state import State
from streams.log.units import Unit
from tests.log.one_worker import OneWorker, agent, one_worker
from tests.pipelines import IN, OUT


def stored_as(values: Mapping[bytes, bytes]) -> SimulatedStore:
    store = SimulatedStore()
    store.apply(values, 0)
    return store


@pytest.fixture
def store() -> SimulatedStore:
    return stored_as({b"a/1": b"one", b"a/3": b"three", b"b/1": b"other"})


@pytest.fixture
def state(store: SimulatedStore) -> State:
    return State(store)


@pytest.fixture
def inlet(state: State) -> Inlet:
    return Shard(0, state, state).open_inlet(IN, Offsets(Mark(0, "")))


def finished(inlet: Inlet) -> Unit:
    unit = Unit(inlet, None)
    unit.clear = True
    return unit


def test_the_newest_value_is_seen_at_once(state: State, inlet: Inlet) -> None:
    state.change(Unit(inlet, None), [(b"a/1", b"newer"), (b"a/2", b"new"), (b"a/3", None)])
    assert [state.get(key) for key in (b"a/1", b"a/2", b"a/3", b"b/1", b"c")] == [b"newer", b"new", None, b"other", None]
    state.change(Unit(inlet, None), [(b"a/1", b"newest"), (b"a/3", b"again")])
    assert [state.get(key) for key in (b"a/1", b"a/3")] == [b"newest", b"again"]


@pytest.mark.parametrize("scanned_before", [False, True])
def test_a_scan_merges_what_is_stored_and_what_is_not_yet(state: State, inlet: Inlet, scanned_before: bool) -> None:
    if scanned_before:
        assert len(list(state.scan(b"a/"))) == 2
    state.change(Unit(inlet, None), [(b"a/4", b"four"), (b"a/0", b"zero"), (b"a/2", b"two"), (b"a/3", None), (b"a/5", None)])
    assert list(state.scan(b"a/")) == [(b"a/0", b"zero"), (b"a/1", b"one"), (b"a/2", b"two"), (b"a/4", b"four")]
    assert list(state.scan(b"b/")) == [(b"b/1", b"other")]
    assert list(state.scan(b"c/")) == []


def test_a_scan_may_begin_in_the_middle(state: State, inlet: Inlet) -> None:
    state.change(Unit(inlet, None), [(b"a/0", b"zero"), (b"a/2", b"two")])

    assert [key for key, _ in state.scan(b"a/", b"a/2")] == [b"a/2", b"a/3"]
    assert [key for key, _ in state.scan(b"a/", b"a/4")] == []
    assert [key for key, _ in state.scan(b"b/", b"a/2")] == [b"b/1"]


def test_a_settled_change_leaves_the_overlay_to_newer_ones(state: State, store: SimulatedStore, inlet: Inlet) -> None:
    first, second = finished(inlet), finished(inlet)
    state.change(first, [(b"a/1", b"first"), (b"a/2", b"first")])
    state.change(second, [(b"a/2", b"second")])
    store.apply({b"a/1": b"first", b"a/2": b"first"}, 2)
    state.settle(first)
    store.values[b"a/1"] = b"from the store"
    assert state.get(b"a/1") == b"from the store"
    assert state.get(b"a/2") == b"second"
    assert list(state.scan(b"a/")) == [(b"a/1", b"from the store"), (b"a/2", b"second"), (b"a/3", b"three")]


def test_who_reads_what_an_unfinished_unit_planned_has_seen_it(state: State, inlet: Inlet) -> None:
    planned = Unit(inlet, None)
    state.change(planned, [(b"a/1", None)])
    assert state.seen() == ()
    state.get(b"a/1")
    assert list(state.seen()) == [planned]
    assert state.seen() == ()
    list(state.scan(b"a/"))
    assert list(state.seen()) == [planned]
    list(state.scan(b"b/"))
    state.get(b"a/3")
    assert state.seen() == ()


def test_who_reads_what_a_finished_unit_changed_waits_for_nobody(state: State, inlet: Inlet) -> None:
    state.change(finished(inlet), [(b"a/1", b"sure")])
    assert state.get(b"a/1") == b"sure"
    assert state.seen() == ()


def test_who_overwrites_what_an_unfinished_unit_planned_waits_for_it(state: State, inlet: Inlet) -> None:
    planned, blind, again = Unit(inlet, None), Unit(inlet, None), finished(inlet)
    state.change(planned, [(b"a/1", b"planned")])
    state.change(blind, [(b"a/1", b"over it"), (b"a/2", b"beside it")])
    assert list(blind.waits_for) == [planned]
    state.change(again, [(b"b/1", b"x")])
    state.change(again, [(b"b/1", b"y")])
    assert list(again.waits_for) == []


@given(
    stored=st.dictionaries(st.binary(max_size=3), st.binary(max_size=2)),
    changes=st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=2))),
    settled=st.integers(0, 20),
    prefix=st.binary(max_size=2),
)
def test_state_is_what_was_stored_with_every_change_since(
    stored: dict[bytes, bytes], changes: Sequence[Change], settled: int, prefix: bytes
) -> None:
    store = stored_as(stored)
    state = State(store)
    inlet = Shard(0, state, state).open_inlet(IN, Offsets(Mark(0, "")))
    units = [finished(inlet) for _ in changes]
    expected = dict(stored)
    for number, (unit, change) in enumerate(zip(units, changes, strict=True)):
        state.change(unit, [change])
        if number % 3 == 0:
            list(state.scan(prefix))
        expected.pop(change[0], None)
        if change[1] is not None:
            expected[change[0]] = change[1]
    for unit, change in list(zip(units, changes, strict=True))[:settled]:
        store.apply(dict([change]), 0)
        state.settle(unit)
    assert all(state.get(key) == expected.get(key) for key in {*stored, *dict(changes)})
    assert list(state.scan(prefix)) == sorted((key, value) for key, value in expected.items() if key.startswith(prefix))


# What a plan changes is never committed ahead of its Outcome: values here say from which units they were derived.

KEYS = 20


def add(state: State, key: bytes, name: bytes) -> Change:
    return key, (state.get(key) or b"") + b" " + name


def plan_lineage(record: Record, state: State, now_ms: int) -> list[Work[Any]] | Outcome:
    """An odd number plans a change and works. An even one is an Outcome at once: it adds itself, or looks and tells, or looks not."""
    key, name = record.key, record.value
    assert key is not None and name is not None
    if int(name) % 2:
        return [Work((key, name), [add(state, key, name)])]
    match int(name) % 3:
        case 0:
            change = add(state, key, name)
        case 1:
            change = (b"told/" + name, (state.get(key) or b"") + b" " + name)
        case _:
            change = (key, name)
    return Outcome([Write(OUT, key, name)], [change])


async def perform_lineage(task: tuple[bytes, bytes], world: Any) -> None:
    await world.work(task[1])


def conclude_lineage(task: tuple[bytes, bytes], result: None, state: State, now_ms: int) -> Outcome:
    """Adds itself once more, and some of them to another key too, so that units come to wait for each other in rings."""
    key, name = task
    keys = [key, b"k%d" % (int(name) % KEYS)] if int(name) % 9 == 0 else [key]
    return Outcome([Write(OUT, key, name)], [add(state, each, name) for each in dict.fromkeys(keys)])


LINEAGE = agent(plan=plan_lineage, perform=perform_lineage, conclude=conclude_lineage)


def test_a_change_that_a_plan_made_waits_for_its_outcome_and_so_does_who_saw_it() -> None:
    async def program() -> None:
        async with one_worker(LINEAGE) as worker:
            worker.send(b"1", key=b"slow")
            worker.send(b"4", b"6", b"8", key=b"slow")
            worker.send(b"12", key=b"other")
            await worker.until(lambda: worker.values(OUT) == [b"12"])
            await worker.until_quiet()
            assert worker.values(OUT) == [b"12"]
            assert worker.state() == {b"other": b" 12"}
            worker.world.release(b"1")
            await worker.until(lambda: len(worker.values(OUT)) == 5)
            assert worker.state() == {b"other": b" 12", b"told/4": b" 1 4", b"slow": b"8 1"}

    simulate(program())


@pytest.mark.parametrize("seed", range(25))
def test_no_committed_value_was_derived_from_an_uncommitted_unit(seed: int) -> None:
    chance = random.Random(seed)

    async def program() -> None:
        async with one_worker(LINEAGE, seed=seed, faults=Faults(abort=chance.choice([0, 0.3]), step_ms_max=10)) as worker:
            names = [b"%d" % number for number in range(60)]
            for name in names:
                worker.send(name, key=b"k%d" % chance.randrange(KEYS))
            await worker.until(lambda: worker.world.begun.total() == 30)
            for name in chance.sample(names, len(names)):
                worker.world.release(name)
                await worker.until(lambda: chance.random() < 0.1)
            await worker.until(lambda: worker.offset() == len(names))
            check_lineage(worker)
            check_order(worker)

    simulate(program())


def check_lineage(worker: OneWorker) -> None:
    """Every transaction here changes state, so the changelog's markers tell the order of commits."""
    entries = worker.cluster.partitions[worker.agent.changelog.name, 0]
    turn = {entry.transaction: entry.offset for entry in entries if entry.is_marker}
    own = {entry.value: turn[entry.transaction] for entry in worker.committed(OUT)}
    assert len(set(own.values())) > 2, "it was all committed at once, which shows nothing"
    for entry in worker.committed(worker.agent.changelog):
        if entry.key and entry.key[:1] != b"\x00":
            for name in (entry.value or b"").split():
                assert own[name] <= turn[entry.transaction], f"{entry.value!r} was committed before {name!r}, which it was derived from"


def check_order(worker: OneWorker) -> None:
    """Changes of a key are written in the order they were made: a value that adds to another comes after that one."""
    before: dict[bytes, bytes] = {}
    for entry in worker.committed(worker.agent.changelog):
        key, value = entry.key or b"", entry.value or b""
        assert not before.get(key, b"").startswith(value + b" "), f"{key!r} went back from {before[key]!r} to {value!r}"
        before[key] = value
