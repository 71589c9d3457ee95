"""The declared topics, and declarations that are refused."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import schemas
from streams.errors import ConfigurationError
from topology import topics
from topology.flow import TOPICS
from topology.topics import Topic, merchant_topic

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": "no spaces"}, "its name must be"),
        ({"name": "x" * 150}, "its name must be"),
        ({"why": "because"}, "must be a sentence"),
        ({"cleanup": "compact", "retention": DAY}, "keeps the last record of each key forever"),
        ({"cleanup": "compact", "tombstones": timedelta(hours=1)}, "miss its tombstones"),
        ({"retention": DAY, "segment_age": DAY}, "longer than its segments last"),
        ({"record_bytes_max": 10}, "record_bytes_max"),
    ],
)
def test_a_declaration_that_would_lose_what_the_topic_is_for_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Topic(**{"name": "a", "why": "A reason.", "key": "merchant", "schema": None, **given})


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_a_topic_names_a_schema_that_exists(topic: Topic) -> None:
    carries_any = topic.name.startswith(("retry-", "changelog-"))
    assert carries_any == (topic.schema is None)
    assert carries_any or (Path(schemas.__path__[0]) / f"{topic.schema}.avsc").exists()


@pytest.mark.parametrize(
    ("topic", "setting", "value"),
    [
        (topics.EVENTS, "retention.ms", str(30 * 24 * 3_600_000)),
        (topics.DLQ, "retention.ms", str(90 * 24 * 3_600_000)),
        (topics.LEDGER_ENTRIES, "retention.ms", "-1"),
        (topics.LEDGER_ENTRIES, "cleanup.policy", "delete"),
        (topics.DELIVERY_STATUS, "cleanup.policy", "compact"),
        (topics.DELIVERY_STATUS, "retention.ms", None),
        (topics.CHANGELOG_DELIVER, "delete.retention.ms", str(24 * 3_600_000)),
        (topics.EVENTS, "max.message.bytes", "1048576"),
        (topics.EVENTS, "compression.type", "producer"),
    ],
)
def test_settings_of_the_broker_follow_from_the_declaration(topic: Topic, setting: str, value: str | None) -> None:
    assert topic.config(replication=1).get(setting) == value


@pytest.mark.parametrize(("replication", "least"), [(1, "1"), (2, "1"), (3, "2"), (5, "4")])
def test_a_write_survives_the_loss_of_a_copy_where_there_are_copies(replication: int, least: str) -> None:
    assert topics.EVENTS.config(replication)["min.insync.replicas"] == least


def test_a_merchants_topic_is_the_same_object_each_time() -> None:
    assert merchant_topic("acme") is merchant_topic("acme")
    with pytest.raises(ConfigurationError, match="its name must be"):
        merchant_topic("a/b")
