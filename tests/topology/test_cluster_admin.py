"""plan, apply and verify on a real cluster: empty, equal and drifted."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from streams.errors import BrokerUnavailable
from streams.settings import Settings, settings
from tests.conftest import SettingsFor
from topology import cluster, cluster_admin, reach
from topology.broker import Broker
from topology.cli import topology_app
from topology.cluster import AddPartitions, ChangeConfig, Create, Plan
from topology.flow import TOPICS

pytestmark = pytest.mark.kafka

Cli = Callable[..., Result]


def plan_for(given: Settings) -> Plan:
    wanted = cluster.wanted(TOPICS, given)
    return cluster.difference(wanted, cluster_admin.read_cluster(reach.admin_client(given), {topic.name for topic in wanted}))


def apply_to(given: Settings) -> Plan:
    plan = plan_for(given)
    cluster_admin.apply(reach.admin_client(given), plan, lambda _: None)
    return plan


def write_one(given: Settings, topic: str) -> None:
    producer = Producer({"bootstrap.servers": given.bootstrap_servers})
    producer.produce(f"{given.topic_prefix}{topic}", b"value", key=b"key")
    assert producer.flush(30) == 0


@pytest.fixture
def cli(broker: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command as a person would, on the shared broker under this test's prefix."""
    monkeypatch.setenv("HOOKLINE_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("HOOKLINE_TOPIC_PREFIX", prefix)

    def run(*arguments: str, partitions: int = 2) -> Result:
        monkeypatch.setenv("HOOKLINE_PARTITIONS", str(partitions))
        settings.cache_clear()
        return CliRunner().invoke(topology_app, arguments)

    return run


def test_an_empty_cluster_is_given_every_topic_and_then_there_is_nothing_to_do(settings_for: SettingsFor, prefix: str) -> None:
    given = settings_for(prefix, partitions=2)
    done = apply_to(given)
    assert [type(change) for change in done.changes] == [Create] * len(TOPICS)
    assert plan_for(given).changes == ()


class Forgetful:
    """A client that believes that new topics have no leaders until it lists all topics, as librdkafka's does at times for 30 s."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._has_listed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)

    def create_topics(self, *arguments: Any, **named: Any) -> Any:
        self._has_listed = False
        return self._admin.create_topics(*arguments, **named)

    def list_topics(self, *arguments: Any, **named: Any) -> Any:
        self._has_listed = True
        return self._admin.list_topics(*arguments, **named)

    def list_offsets(self, asked: Mapping[TopicPartition, Any], **named: Any) -> Any:
        if self._has_listed:
            return self._admin.list_offsets(asked, **named)  # type: ignore[arg-type]  # a dict in all but its type
        refused: Future[Any] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")))
        return dict.fromkeys(asked, refused)


def test_a_client_that_knows_no_leaders_of_new_topics_is_told(
    settings_for: SettingsFor, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_admin, "TIMEOUT_S", 5)
    given = settings_for(prefix, partitions=1)
    cluster_admin.apply(cast("AdminClient", Forgetful(reach.admin_client(given))), plan_for(given), lambda _: None)

    assert plan_for(given).changes == ()


def test_a_drifted_cluster_is_told_and_mended(cli: Cli, broker: Broker, prefix: str) -> None:
    assert cli("apply").exit_code == 0
    assert cli("verify").exit_code == 0
    drift = Plan((ChangeConfig(f"{prefix}events", "retention.ms", "2592000000", "60000"),))
    cluster_admin.apply(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), drift, lambda _: None)

    verified, planned, applied = cli("verify"), cli("plan"), cli("apply")
    line = f"~ {prefix}events: retention.ms 60000 → 2592000000"
    assert (verified.exit_code, planned.exit_code, applied.exit_code) == (1, 0, 0)
    assert all(line in result.output for result in (verified, planned, applied))
    assert "nothing to do" in cli("plan").output


def test_a_missing_topic_is_created_and_the_rest_is_left_alone(cli: Cli, broker: Broker, prefix: str) -> None:
    assert cli("apply").exit_code == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([f"{prefix}dlq"])[f"{prefix}dlq"].result()
    while f"{prefix}dlq" in admin.list_topics(timeout=10).topics:  # the controller has deleted it, and the broker hears of it soon
        time.sleep(0.01)
    assert f"+ {prefix}dlq: create" in cli("apply").output
    assert cli("verify").exit_code == 0


def test_empty_topics_are_all_given_more_partitions(settings_for: SettingsFor, prefix: str) -> None:
    apply_to(settings_for(prefix, partitions=1))
    grown = apply_to(settings_for(prefix, partitions=2))
    assert {type(change) for change in grown.changes} == {AddPartitions}
    assert plan_for(settings_for(prefix, partitions=2)).changes == ()


def test_with_a_record_in_one_topic_more_partitions_are_refused_to_all(cli: Cli, settings_for: SettingsFor, prefix: str) -> None:
    assert cli("apply", partitions=1).exit_code == 0
    write_one(settings_for(prefix), "payout-commands")
    refused = cli("apply", partitions=2)
    assert refused.exit_code == 1
    assert f"! {prefix}events: has 1 partition(s), should have 2" in refused.output
    assert "Set HOOKLINE_PARTITIONS=1" in refused.output
    assert cli("verify", partitions=2).exit_code == 1
    assert cli("verify", partitions=1).exit_code == 0


def test_topics_of_others_under_the_prefix_are_ignored(cli: Cli, settings_for: SettingsFor, prefix: str) -> None:
    assert cli("apply").exit_code == 0
    extra = Plan((Create(cluster.Wanted(f"{prefix}merchant-acme", 1, 1, {}, by_merchant=False)),))
    cluster_admin.apply(reach.admin_client(settings_for(prefix)), extra, lambda _: None)
    assert cli("verify").exit_code == 0


def test_a_cluster_that_does_not_answer_is_told_with_what_to_do(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_admin, "TIMEOUT_S", 1)
    with pytest.raises(BrokerUnavailable, match="hookline broker status"):
        plan_for(Settings(bootstrap_servers="127.0.0.1:1", topic_prefix=prefix))
