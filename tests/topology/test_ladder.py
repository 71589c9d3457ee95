"""The rungs, and ladders that are refused."""

from dataclasses import replace
from datetime import timedelta

import pytest

from streams.errors import ConfigurationError
from topology.ladder import RUNG_TOPICS, RUNGS, Rung, checked, rung


def test_the_ladder_climbs_from_five_seconds_to_three_days() -> None:
    labels = [topic.name.removeprefix("retry-") for topic in RUNG_TOPICS]
    assert labels == ["5s", "15s", "30s", "1m", "2m", "5m", "10m", "15m", "30m", "1h", "2h", "6h", "12h", "24h", "72h"]
    assert [each.delay_ms // 1000 for each in RUNGS] == [
        5, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 259_200,
    ]  # fmt: skip


@pytest.mark.parametrize("each", RUNGS, ids=lambda each: each.topic.name)
def test_a_rung_outlasts_its_delay_by_a_week_and_keeps_the_brokers_time(each: Rung) -> None:
    config = each.topic.config(replication=1)
    assert int(config["retention.ms"]) >= each.delay_ms + 7 * 24 * 3_600_000
    assert config["message.timestamp.type"] == "LogAppendTime"


@pytest.mark.parametrize("labels", [("5s", "5s"), ("1m", "30s")])
def test_a_ladder_that_does_not_climb_is_refused(labels: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="must be longer"):
        checked([rung(label) for label in labels])


def test_a_rung_that_would_drop_what_waits_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must keep records"):
        Rung(timedelta(days=2), rung("24h").topic)


def test_a_rung_on_a_producers_clock_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be the broker's"):
        Rung(timedelta(seconds=5), replace(rung("5s").topic, timestamps="CreateTime"))
