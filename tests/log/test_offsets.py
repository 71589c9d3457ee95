"""Which offsets are committed when records finish out of order: tables, and a property over all that can happen in between."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streams.log.offsets import METADATA_BYTES_MAX, PACKED_BYTES_MAX, UNFINISHED_MAX, Mark, Offsets, pack, unpack

WRITER = "0123456789ab.19a9d0c1b2f.ffffffffff"
"""A worker's id, the millisecond it began in, and a trillion commits: as long as a writer's name gets."""

FOUR_BYTES_MAX = 2**28 - 1


def worked_off(start: Mark, offered: Iterable[int], unfinished: Iterable[int]) -> Offsets:
    """Offsets after these were read and all but the unfinished were done."""
    offsets, left = Offsets(start), set(unfinished)
    for offset in offered:
        if offsets.hand_out(offset) and offset not in left:
            offsets.finish(offset)
    return offsets


def handed_out_again(mark: Mark, offered: Iterable[int]) -> list[int]:
    """What the next reader does, whoever that is."""
    following = Offsets(mark)
    return [offset for offset in offered if offset >= mark.offset and following.hand_out(offset)]


@pytest.mark.parametrize(
    ("offered", "unfinished", "committed"),
    [
        pytest.param([], [], 0, id="nothing was read"),
        pytest.param(range(33), [], 33, id="all is done"),
        pytest.param(range(33), [31], 31, id="31 is in flight and 32 done"),
        pytest.param(range(100), range(5), 0, id="nothing is committed yet and the first five are in flight"),
        pytest.param(range(100), range(100), 0, id="all are in flight"),
        pytest.param([0, 1, 2, 4, 5], [4], 4, id="a marker at 3, before the unfinished one"),
        pytest.param([0, 1, 2, 4, 5], [2], 2, id="a marker at 3, after the unfinished one"),
        pytest.param([0, 1, 2, 4, 5], [2, 4], 2, id="a marker at 3, between two unfinished ones"),
        pytest.param([7, 900, 901, 5_000_000], [900], 900, id="compaction left little"),
        pytest.param([7, 900, 901, 5_000_000], [7, 5_000_000], 7, id="compaction left little, and its ends are in flight"),
    ],
)
def test_the_first_unfinished_is_committed_and_the_next_reader_does_the_unfinished_and_nothing_else(
    offered: Iterable[int], unfinished: Iterable[int], committed: int
) -> None:
    mark = worked_off(Mark(0, ""), offered, unfinished).mark(WRITER)
    new = max(offered, default=-1) + 1
    assert mark.offset == committed
    assert handed_out_again(mark, [*offered, new, new + 1]) == [*unfinished, new, new + 1]


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "reset by hand",
        "kafka-consumer-groups",
        f"1 {WRITER}",
        f"1 {WRITER} ",
        f"1 {WRITER} {pack(10, [12], 20)} more",
        f"2 {WRITER} {pack(10, [12], 20)}",
        f"1 {WRITER} \x00\x01\x02",
        f"1 {WRITER} é",
        f'1 {WRITER} "quotes"',
    ],
)
def test_above_a_mark_that_is_not_ours_nothing_is_done(metadata: str) -> None:
    assert unpack(Mark(10, metadata)) == (10, frozenset())
    assert handed_out_again(Mark(10, metadata), range(30)) == list(range(10, 30))


def test_a_mark_cut_short_loses_nothing() -> None:
    whole = worked_off(Mark(0, ""), range(0, 3_000, 3), [9, 600, 1_500, 2_997]).mark(WRITER)
    for length in range(len(whole.metadata)):
        again = handed_out_again(Mark(whole.offset, whole.metadata[:length]), range(0, 3_000, 3))
        assert {9, 600, 1_500, 2_997} <= set(again)


@pytest.mark.parametrize("gap", [1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, FOUR_BYTES_MAX])
def test_the_most_that_may_be_in_flight_fits_whatever_the_gaps(gap: int) -> None:
    offered = [2**40 + number * gap for number in range(UNFINISHED_MAX)]
    last = offered[-1] + gap
    mark = worked_off(Mark(0, ""), [*offered, last], offered).mark(WRITER)
    assert len(mark.metadata.encode()) <= METADATA_BYTES_MAX
    assert unpack(mark) == (last + 1, frozenset(offered))


@pytest.mark.parametrize("gap", [1, 100, 127, 128, 200, 1_000, 16_384, FOUR_BYTES_MAX])
@pytest.mark.parametrize("other_gap", [1, 128, 100_000])
def test_what_a_mark_says_it_can_name_fits_and_it_can_always_name_the_usual_most(gap: int, other_gap: int) -> None:
    offsets, offset, count = Offsets(Mark(0, "")), 2**40, 0
    while offsets.can_name(count + 1):
        assert offsets.hand_out(offset)
        offset, count = offset + (gap if count % 3 else other_gap), count + 1
    assert UNFINISHED_MAX <= count < PACKED_BYTES_MAX
    assert len(offsets.mark(WRITER).metadata.encode()) <= METADATA_BYTES_MAX
    assert (gap, other_gap) != (1, 1) or count > 3_000


@pytest.mark.parametrize(
    ("read_on", "committed", "left"),
    [
        pytest.param([], 31, [31, 40], id="nothing yet"),
        pytest.param([31], 40, [40], id="the first inherited one: the next inherited one is committed"),
        pytest.param(range(31, 36), 40, [40], id="past the first inherited one"),
        pytest.param(range(31, 41), 50, [], id="both: the inherited high is committed, though it was not read up to there"),
        pytest.param(range(31, 60), 60, [], id="past the inherited high"),
    ],
)
def test_with_nothing_open_the_next_inherited_offset_is_committed_else_its_high(
    read_on: Iterable[int], committed: int, left: list[int]
) -> None:
    inherited = worked_off(Mark(0, ""), range(50), [31, 40]).mark(WRITER)
    mark = worked_off(inherited, read_on, []).mark(WRITER)
    assert mark.offset == committed
    assert handed_out_again(mark, range(60)) == [*left, *range(max(50, committed), 60)]


def test_what_was_handed_out_is_not_handed_out_again() -> None:
    offsets = worked_off(Mark(0, ""), range(5), [3])
    assert [offsets.hand_out(offset) for offset in range(6)] == [False, False, False, False, False, True]


def test_marks_of_two_commits_differ_though_they_say_the_same() -> None:
    offsets = worked_off(Mark(0, ""), range(5), [3])
    assert offsets.mark(f"{WRITER}.1") != offsets.mark(f"{WRITER}.2")


@dataclass
class Worker:
    """One that has the partition, or had it: its offsets, how far it has read, and what it is busy with."""

    offsets: Offsets
    read_to: int
    in_flight: list[int] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)


class OnePartition(RuleBasedStateMachine):
    """A partition that goes from worker to worker. `done` is what is finished and committed: the truth that marks must tell."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []
        self.end = 0
        self.done: set[int] = set()
        self.committed = Mark(0, "")
        self.commits = 0
        self.former: list[Worker] = []
        self.worker = Worker(Offsets(self.committed), 0)

    @initialize(start=st.sampled_from([0, 5, 2**33]))
    def begin_somewhere(self, start: int) -> None:
        self.end = start
        self.committed = Mark(start, "")
        self.worker = Worker(Offsets(self.committed), start)

    @rule(count=st.integers(1, 12), gap=st.sampled_from([0, 0, 1, 2, 200, 70_000]))
    def append(self, count: int, gap: int) -> None:
        """Records, and then a gap: a marker, or what was aborted or compacted away."""
        self.log.extend(range(self.end, self.end + count))
        self.end += count + gap

    @rule(count=st.integers(1, 15))
    def hand_out(self, count: int) -> None:
        worker = self.worker
        for offset in [offset for offset in self.log if offset >= worker.read_to][:count]:
            worker.read_to = offset + 1
            is_new = worker.offsets.hand_out(offset)
            assert is_new == (offset not in self.done), f"{offset} is {'done' if offset in self.done else 'not done'}"
            if is_new:
                worker.in_flight.append(offset)

    @rule()
    def reach_the_end(self) -> None:
        """The log is told to end here, once its last record has been handed out."""
        worker = self.worker
        if all(offset < worker.read_to for offset in self.log):
            worker.offsets.reach(self.end)
            worker.read_to = max(worker.read_to, self.end)
            if not worker.in_flight:
                assert worker.offsets.is_behind() == (self.committed.offset < self.end)

    @rule()
    def read_again(self) -> None:
        """A rebalance gave the partition back untouched: what was handed out stays in flight, and nothing is handed out twice."""
        worker = self.worker
        assert not any(worker.offsets.hand_out(offset) for offset in self.log if offset < worker.offsets.position)
        worker.read_to = worker.offsets.position

    @precondition(lambda self: self.worker.in_flight)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        worker = self.worker
        offset = worker.in_flight.pop(data.draw(st.integers(0, len(worker.in_flight) - 1)))
        worker.offsets.finish(offset)
        worker.finished.add(offset)

    @rule()
    def commit(self) -> None:
        self.committed = self.worker.offsets.known = self.next_mark()
        self.done |= self.worker.finished
        self.worker.finished = set()

    @rule(before_the_commit=st.booleans())
    def go_elsewhere(self, before_the_commit: bool) -> None:
        """A crash, or a revoke in which nothing more is committed; also after the mark was made and before it was committed."""
        if before_the_commit:
            self.next_mark()
        self.former.append(self.worker)
        self.worker = Worker(Offsets(self.committed), self.committed.offset)

    @precondition(lambda self: any(worker.in_flight for worker in self.former))
    @rule()
    def finish_late(self) -> None:
        """A worker that had the partition before finishes: it may even make a mark, which the broker refuses."""
        for worker in self.former:
            if worker.in_flight:
                worker.offsets.finish(worker.in_flight.pop())
                worker.offsets.mark("late")

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def reset_by_hand(self, data: st.DataObject) -> None:
        """A person moves the group: from there on nothing is done, whatever was."""
        offset = data.draw(st.integers(self.log[0], self.end))
        self.former.append(self.worker)
        self.committed = Mark(offset, "")
        self.done = {before for before in self.log if before < offset}
        self.worker = Worker(Offsets(self.committed), offset)

    def next_mark(self) -> Mark:
        self.commits += 1
        return self.worker.offsets.mark(f"{WRITER}.{self.commits:x}")

    @invariant()
    def the_committed_mark_tells_what_is_done(self) -> None:
        passed = {offset for offset in self.log if offset < self.committed.offset}
        assert passed <= self.done, f"committed past {sorted(passed - self.done)}, which are unfinished"
        assert handed_out_again(self.committed, self.log) == [offset for offset in self.log if offset not in self.done]
        assert len(self.committed.metadata) <= METADATA_BYTES_MAX

    def teardown(self) -> None:
        """Never stuck: whoever has it now comes to the end, and has done everything."""
        self.hand_out(len(self.log))
        for offset in self.worker.in_flight:
            self.worker.offsets.finish(offset)
            self.worker.finished.add(offset)
        self.worker.in_flight = []
        self.commit()
        assert self.done == set(self.log)
        assert self.committed.offset > max(self.log, default=-1)
        assert handed_out_again(self.committed, self.log) == []


TestOnePartition = OnePartition.TestCase
TestOnePartition.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
