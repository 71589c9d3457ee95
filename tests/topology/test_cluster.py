"""The difference between declared and actual topics, in tables."""

from dataclasses import replace

import pytest

from streams.settings import Settings
from topology import topics
from topology.cluster import Actual, AddPartitions, Change, ChangeConfig, Create, Refused, Wanted, difference, wanted

CONFIG = {"retention.ms": "1000", "min.insync.replicas": "2"}
EVENTS = Wanted("events", 6, 3, CONFIG, by_merchant=True)
DLQ = Wanted("dlq", 6, 3, CONFIG, by_merchant=True)
TABLE = Wanted("table", 1, 3, CONFIG, by_merchant=False)


def as_wanted(topic: Wanted, *, empty: bool = False) -> Actual:
    return Actual(topic.name, topic.partitions, topic.replication, {**topic.config, "segment.ms": "not ours"}, empty)


def changes(*actual: Actual) -> tuple[Change, ...]:
    return difference([EVENTS, DLQ, TABLE], {topic.name: topic for topic in actual}).changes


def test_an_empty_cluster_gets_every_topic() -> None:
    assert changes() == (Create(EVENTS), Create(DLQ), Create(TABLE))


def test_an_equal_cluster_needs_nothing_and_what_is_not_declared_is_not_looked_at() -> None:
    other = Actual("somebody-elses", 99, 1, {}, empty=False)
    assert changes(as_wanted(EVENTS), as_wanted(DLQ), as_wanted(TABLE), other) == ()


@pytest.mark.parametrize(("old", "found"), [("5", {"retention.ms": "5"}), (None, {})])
def test_a_setting_that_differs_is_changed(old: str | None, found: dict[str, str]) -> None:
    drifted = replace(as_wanted(TABLE), config={"min.insync.replicas": "2", **found})
    assert changes(as_wanted(EVENTS), as_wanted(DLQ), drifted) == (ChangeConfig("table", "retention.ms", old, "1000"),)


def test_partitions_are_added_to_all_topics_of_merchants_while_all_are_empty() -> None:
    few = [replace(as_wanted(topic, empty=True), partitions=2) for topic in (EVENTS, DLQ)]
    assert changes(*few, as_wanted(TABLE)) == (AddPartitions("events", 2, 6), AddPartitions("dlq", 2, 6))


def test_partitions_are_refused_to_all_topics_of_merchants_when_one_holds_records() -> None:
    events = replace(as_wanted(EVENTS, empty=True), partitions=2)
    dlq = replace(as_wanted(DLQ, empty=False), partitions=2)
    found = changes(events, dlq, as_wanted(TABLE))
    assert [(type(change), change.topic) for change in found] == [(Refused, "events"), (Refused, "dlq")]
    assert all("HOOKLINE_PARTITIONS=2" in str(change) for change in found)


def test_a_missing_topic_is_not_created_beside_others_that_must_keep_another_count() -> None:
    found = changes(replace(as_wanted(EVENTS), partitions=2), as_wanted(TABLE))
    assert [(type(change), change.topic) for change in found] == [(Refused, "events"), (Refused, "dlq")]


def test_partitions_are_never_taken_away() -> None:
    many = replace(as_wanted(EVENTS, empty=True), partitions=12)
    (refused,) = changes(many, as_wanted(DLQ), as_wanted(TABLE))
    assert isinstance(refused, Refused)
    assert "cannot take any away" in str(refused)


@pytest.mark.parametrize(("empty", "expected"), [(True, AddPartitions), (False, Refused)])
def test_a_table_gets_partitions_only_while_it_is_empty(empty: bool, expected: type[Change]) -> None:
    grown = replace(TABLE, partitions=3)
    (change,) = difference([grown], {"table": as_wanted(TABLE, empty=empty)}).changes
    assert type(change) is expected


def test_copies_are_left_to_a_person_and_so_is_how_many_must_be_written() -> None:
    """With one copy, a least of two would stop every write."""
    single = replace(as_wanted(TABLE), replication=1, config={"retention.ms": "1000", "min.insync.replicas": "1"})
    (refused,) = changes(as_wanted(EVENTS), as_wanted(DLQ), single)
    assert isinstance(refused, Refused)
    assert "kafka-reassign-partitions" in str(refused)


def test_what_is_wanted_follows_from_the_settings() -> None:
    events, subscriptions = wanted([topics.EVENTS, topics.SUBSCRIPTIONS], Settings(topic_prefix="eu.", partitions=12, replication=3))
    assert (events.name, events.partitions, events.replication) == ("eu.events", 12, 3)
    assert (subscriptions.name, subscriptions.partitions) == ("eu.subscriptions", 1)
    assert events.config["min.insync.replicas"] == "2"


def test_how_long_events_are_kept_is_a_setting_and_no_other_topic_heeds_it() -> None:
    events, letters = wanted([topics.EVENTS, topics.DLQ], Settings(events_kept_days=2))

    assert events.config["retention.ms"] == str(2 * 24 * 3_600_000)
    assert letters.config["retention.ms"] == str(90 * 24 * 3_600_000)
