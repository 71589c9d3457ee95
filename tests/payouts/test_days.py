"""Days of payouts from seeds: each ends as its bank says, sums are zero at every commit, and nothing is left without an owner.

HOOKLINE_SEEDS says how many seeds, and HOOKLINE_SEED_PROCESSES how many at once; `make prove` takes 2,000.
"""

import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest
import structlog

from tests.delivery.days import silence
from tests.payouts.days import Day, run_day

SEEDS = int(os.environ.get("HOOKLINE_SEEDS", "12"))
PROCESSES = int(os.environ.get("HOOKLINE_SEED_PROCESSES", "2"))


@pytest.fixture(scope="module")
def reports() -> Iterator[list[Day]]:
    """All days, with a line of progress where there are many. Begun afresh, for a fork of a process with a Kafka client may hang."""
    found: list[Day] = []
    silence()
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"), initializer=silence) as pool:
        for report in pool.map(run_day, range(SEEDS), chunksize=2):
            found.append(report)
            if len(found) % 100 == 0:
                print(f"  days of payouts {len(found)}/{SEEDS}, {sum(bool(each.wrong) for each in found)} wrong", file=sys.__stderr__)
    yield found
    structlog.reset_defaults()


@pytest.mark.timeout(7_200)
def test_every_payout_ends_as_its_bank_says_whatever_fails(reports: list[Day]) -> None:
    assert not any(report.wrong for report in reports), "\n".join(str(report) for report in reports if report.wrong)


def test_the_days_have_everything_in_them_that_they_are_there_for(reports: list[Day]) -> None:
    states = sum((report.states for report in reports), Counter[str]())
    faults = {fault.partition(" ")[2] for report in reports for fault in report.faults}

    assert states.keys() >= {"SUCCESS", "FAILED"} and sum(report.stuck for report in reports) > 0
    assert faults == {"none", "kill", "freeze", "clock", "cancel", "mend", "long stop"}


def test_a_seed_replays_the_same_way() -> None:
    assert run_day(1) == run_day(1)
