"""Days of deliveries from seeds: everything that was sent is delivered, dead-lettered or cancelled, once, in order, and never early."""

import pytest

from tests.delivery.days import run_day


@pytest.mark.parametrize("seed", range(40))
def test_a_day(seed: int) -> None:
    report = run_day(seed)

    assert report.wrong == [], report
    assert report.delivered > 0
