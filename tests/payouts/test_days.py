"""Days of payouts from seeds: each ends as its bank says, sums are zero at every commit, and nothing is left without an owner."""

import pytest

from tests.payouts.days import run_day


@pytest.mark.parametrize("seed", range(12))
def test_a_day(seed: int) -> None:
    report = run_day(seed)

    assert report.wrong == [], report
    assert report.states["SUCCESS"] > 0
