"""The drawn flow, compared with what was last reviewed."""

from datetime import timedelta
from pathlib import Path

import pytest

from topology.readme import README, refreshed
from topology.render import flow_mermaid, flow_text, span

GOLDEN = Path(__file__).with_name("flow.golden.txt")


def test_the_wiring_is_the_one_last_reviewed() -> None:
    assert flow_text() == GOLDEN.read_text(), "if the change is meant: hookline topology show > tests/topology/flow.golden.txt"


def test_the_readme_shows_the_flow_and_the_topics_as_declared() -> None:
    text = README.read_text()
    assert flow_mermaid() in text
    assert refreshed(text) == text, "if the change is meant: python -m topology.readme"


@pytest.mark.parametrize(
    ("length", "said"),
    [(timedelta(days=7, seconds=5), "7 days 5 s"), (timedelta(days=30), "30 days"), (timedelta(hours=2, minutes=1), "2 h 1 min")],
)
def test_a_length_of_time_reads_as_a_person_would_say_it(length: timedelta, said: str) -> None:
    assert span(length) == said
