"""Both pipelines on the simulated log, over many seeds: nothing lost, exact; and bugs put in on purpose are found.

HOOKLINE_SEEDS says how many seeds; `make prove` takes 1,000.
"""

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest
import structlog

from streams.log.offsets import FORMAT, Mark, Offsets, pack
from streams.log.shard import Shard
from streams.log.units import Unit
from tests.pipelines import PIPELINES
from tests.simulation.scenario import Report, run_seed

SEEDS = int(os.environ.get("HOOKLINE_SEEDS", "60"))
SEEDS_TO_FIND_A_BUG = 100
PROCESSES = 2


def silence() -> None:
    """A simulated worker says as much as a real one, and a thousand seeds have ten thousand of them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def run_named(name: str, seed: int) -> Report:
    """By name, since an agent's functions do not travel between processes."""
    return run_seed(PIPELINES[name], seed)


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    silence()
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Begun afresh, for a fork of a process in which a Kafka client has run may hang."""
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), initializer=silence) as pool:
        yield pool


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", PIPELINES)
def test_nothing_is_lost_and_output_and_state_are_exact_whatever_fails(name: str, processes: ProcessPoolExecutor) -> None:
    reports = list(processes.map(run_named, [name] * SEEDS, range(SEEDS), chunksize=10))
    wrong = [report for report in reports if report.wrong]
    assert not wrong, "\n".join(told(name, report) for report in wrong)
    kinds = {fault.split(" ", 1)[1].rsplit(" ", 1)[0] for report in reports for fault in report.faults}
    assert kinds == {"kill", "kill long", "freeze", "freeze long", "clock"}


def told(name: str, report: Report) -> str:
    replay = f'python -c "from tests.simulation.test_pipelines import run_named; print(run_named({name!r}, {report.seed}))"'
    return f"{name}, seed {report.seed}: {'; '.join(report.wrong[:3])}; after {', '.join(report.faults)}. Replay it: {replay}"


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_replays_the_same_way_here_and_in_another_process(name: str, seed: int, processes: ProcessPoolExecutor) -> None:
    elsewhere = processes.submit(run_named, name, seed)
    here, again = run_named(name, seed), run_named(name, seed)
    assert here == again == elsewhere.result()
    assert here.faults
    assert here.transactions > 0


# Bugs that were put in on purpose, each as a method in place of another.


def mark_past_the_unfinished(self: Offsets, writer: str) -> Mark:
    """Commits what was handed out, finished or not."""
    high = max(self.position, self._inherited_high)
    return Mark(high, f"{FORMAT} {writer} {pack(high, [], high)}")


def believe_that_it_is_ours(self: Shard, marks: object) -> bool:
    """Keeps its work after a rebalance, whoever had the partition meanwhile."""
    return True


def settle_nothing(self: Shard, units: list[Unit]) -> None:
    """Never lets go of what is committed, so that back pressure holds for ever."""


@pytest.mark.parametrize(
    ("owner", "method", "bug"),
    [
        pytest.param(Offsets, "mark", mark_past_the_unfinished, id="commits past the first unfinished"),
        pytest.param(Shard, "is_ours_still", believe_that_it_is_ours, id="keeps work of a partition that others had"),
        pytest.param(Shard, "settle", settle_nothing, id="never makes room"),
    ],
)
def test_a_bug_put_in_on_purpose_is_found(owner: type, method: str, bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, method, bug)
    found = next((seed for seed in range(SEEDS_TO_FIND_A_BUG) for name in PIPELINES if is_wrong(name, seed)), None)
    assert found is not None, f"{SEEDS_TO_FIND_A_BUG} seeds did not find it"


def is_wrong(name: str, seed: int) -> bool:
    """A simulation that can't go on at all has found something too."""
    try:
        return bool(run_named(name, seed).wrong)
    except (RuntimeError, AssertionError):
        return True
