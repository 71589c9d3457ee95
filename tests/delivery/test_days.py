"""Days of deliveries from seeds: each ends as its rules say, none early, none lost, order kept; and bugs put in on purpose are found.

HOOKLINE_SEEDS says how many seeds; `make prove` takes 2,000.
"""

import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import structlog

from streams.delivery import handler, order
from streams.delivery.delivery import Delivery
from streams.delivery.handler import Deliverer
from streams.delivery.rules import RetryAt, Verdict, judge
from streams.delivery.state import ShardMemory
from streams.delivery.tasks import Post, PutOff
from streams.log.records import Outcome
from tests.delivery.days import Day, run_or_say_why, silence, told
from tests.delivery.merchants import BEHAVIOURS
from tests.delivery.troubles import TROUBLES

SEEDS = int(os.environ.get("HOOKLINE_SEEDS", "60"))
SEEDS_TO_FIND_A_BUG = 100
PROCESSES = 2


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


@pytest.fixture(scope="module")
def reports(processes: ProcessPoolExecutor) -> list[Day]:
    """All days, with a line of progress where there are many."""
    found: list[Day] = []
    for report in processes.map(run_or_say_why, range(SEEDS), chunksize=5):
        found.append(report)
        if len(found) % 100 == 0:
            print(f"  days of deliveries {len(found)}/{SEEDS}, {sum(bool(each.wrong) for each in found)} wrong", file=sys.__stderr__)
    return found


@pytest.mark.timeout(3_600)
def test_every_delivery_ends_as_its_rules_say_whatever_fails(reports: list[Day]) -> None:
    assert not any(report.wrong for report in reports), "\n".join(told(report) for report in reports if report.wrong)


def test_the_days_have_everything_in_them_that_they_are_there_for(reports: list[Day]) -> None:
    def all_of(part: str) -> Counter[str]:
        return sum((getattr(report, part) for report in reports), Counter())

    assert all_of("seen").keys() == TROUBLES.keys()
    assert all_of("shown").keys() == BEHAVIOURS.keys()
    assert all_of("ends").keys() == {"DELIVERED", "CANCELLED", "DLQ", "PENDING", "DLQ EXHAUSTED", "DLQ AMBIGUOUS", "DLQ GONE"}
    assert all_of("waits").keys() == {"RETRY", "THROTTLED", "BREAKER", "PARKED", "PAUSED", "HELD"}
    assert all_of("disabled").keys() == {"somebody asked", "gone", "failures", "tls"}
    assert sum(report.twice for report in reports) > 0, "no fault made a worker post twice"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_replays_the_same_way_here_and_in_another_process(seed: int, processes: ProcessPoolExecutor) -> None:
    elsewhere = processes.submit(run_or_say_why, seed)
    here, again = run_or_say_why(seed), run_or_say_why(seed)

    assert here == again == elsewhere.result()
    assert here.posts > 0
    assert here.trace


# Bugs that were put in on purpose, each as a function in place of another.


def forget_the_head(*arguments: Any, **options: Any) -> None:
    """An ordered resource does not know whom it waits for."""


def retry_a_minute_early(attempt: int, *arguments: Any) -> Verdict:
    verdict = judge(attempt, *arguments)
    return RetryAt(verdict.due_ms - 60_000, verdict.reason) if isinstance(verdict, RetryAt) else verdict


put_off = Deliverer._put_off


def spend_an_attempt_on_a_throttle(self: Deliverer, task: Post, later: PutOff, memory: ShardMemory, now_ms: int) -> Outcome:
    spent = Delivery(**{name: getattr(task.delivery, name) for name in task.delivery.__struct_fields__} | {"attempts_spent": 1})
    return put_off(self, Post(spent, task.subscription, task.lane), later, memory, now_ms)


def never_disable(*arguments: Any) -> None:
    """No streak is long enough."""


def always_take(*arguments: Any) -> bool:
    """A pause is not heard of in the lane."""
    return True


@pytest.mark.parametrize(
    ("owner", "name", "bug", "complaint", "first"),
    [
        pytest.param(order, "keep_head", forget_the_head, "", 0, id="forgets the head of an ordered resource"),
        pytest.param(handler, "judge", retry_a_minute_early, "early", 0, id="lets a retry go early"),
        pytest.param(Deliverer, "_put_off", spend_an_attempt_on_a_throttle, "", 0, id="counts an attempt for a throttle"),
        pytest.param(handler, "why_disable", never_disable, "not disabled", 0, id="never disables"),
        pytest.param(Deliverer, "_still_takes", always_take, "was ['PAUSED']", 50, id="posts from the lane to a paused subscription"),
    ],
)
def test_a_bug_put_in_on_purpose_is_found(
    owner: Any, name: str, bug: Callable[..., object], complaint: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)

    found = (what for seed in range(first, first + SEEDS_TO_FIND_A_BUG) for what in run_or_say_why(seed).wrong)

    assert any(complaint in what for what in found), f"{SEEDS_TO_FIND_A_BUG} seeds did not find it"
