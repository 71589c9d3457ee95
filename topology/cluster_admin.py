"""Reads a cluster's topics and applies a plan to it, through Kafka's admin client."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # The package re-exports them without saying so.
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from streams.errors import BrokerUnavailable, ConfigurationError
from topology.cluster import Actual, AddPartitions, Change, ChangeConfig, Create, Plan

TIMEOUT_S = 30
LEADER_POLL_S = 0.05
LEADER_NOT_READY = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError._NOENT,
)


def read_cluster(admin: AdminClient, names: Collection[str]) -> dict[str, Actual]:
    """Read those of the named topics that exist: partitions, copies, settings, and whether any record is in them."""
    try:
        found = admin.list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as error:
        raise BrokerUnavailable(
            f"reading the cluster's topics: {error.args[0].str()}. "
            "Check HOOKLINE_BOOTSTRAP_SERVERS, or the local broker with `hookline broker status`"
        ) from error
    existing = {name: found[name] for name in names if name in found and not found[name].error}
    configs = _read_configs(admin, existing)
    filled = _with_records(admin, [TopicPartition(name, number) for name, topic in existing.items() for number in topic.partitions])
    return {
        name: Actual(
            name,
            len(topic.partitions),
            min(len(partition.replicas) for partition in topic.partitions.values()),
            configs[name],
            name not in filled,
        )
        for name, topic in existing.items()
    }


def _read_configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    if not resources:
        return {}
    answers = _results("reading topic settings", admin.describe_configs(resources, request_timeout=TIMEOUT_S))
    return {resource.name: {entry.name: entry.value for entry in entries.values()} for resource, entries in answers.items()}


def _with_records(admin: AdminClient, partitions: list[TopicPartition]) -> set[str]:
    """Name the topics that hold anything between their first and their last offset."""
    first = _offsets(admin, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    last = _offsets(admin, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    return {topic for (topic, number), offset in last.items() if offset > first[topic, number]}


def _offsets(admin: AdminClient, partitions: list[TopicPartition], spec: Any) -> dict[tuple[str, int], int]:
    """Ask every partition's leader for an offset; one that does not know yet that it leads is asked again."""
    offsets: dict[tuple[str, int], int] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while waiting := [each for each in partitions if (each.topic, each.partition) not in offsets]:
        for each, future in admin.list_offsets(dict.fromkeys(waiting, spec), request_timeout=TIMEOUT_S).items():
            try:
                offsets[each.topic, each.partition] = future.result().offset
            except KafkaException as error:
                if error.args[0].code() not in LEADER_NOT_READY or time.monotonic() > deadline:
                    where = f"{each.topic}-{each.partition}"
                    raise BrokerUnavailable(f"asking {where} for its offsets: {error.args[0].str()}. Look at the brokers' logs") from error
        if len(offsets) < len(partitions):
            time.sleep(LEADER_POLL_S)
            admin.list_topics(timeout=TIMEOUT_S)  # or the client may believe for half a minute that a new topic has no leaders
    return offsets


def apply(admin: AdminClient, plan: Plan, done: Callable[[Change], None]) -> None:
    """Do what the plan can do, in this order: create, add partitions, change settings; tell each as it is done."""
    created = [change for change in plan.doable if isinstance(change, Create)]
    grown = [change for change in plan.doable if isinstance(change, AddPartitions)]
    changed = [change for change in plan.doable if isinstance(change, ChangeConfig)]
    if created:
        _create(admin, created)
    if grown:
        partitions = [NewPartitions(change.topic, change.new) for change in grown]
        _results("adding partitions", admin.create_partitions(partitions, request_timeout=TIMEOUT_S))
    if changed:
        _results("changing topic settings", admin.incremental_alter_configs(_alterations(changed), request_timeout=TIMEOUT_S))
    _wait_until_led(
        admin, {change.topic.name: change.topic.partitions for change in created} | {change.topic: change.new for change in grown}
    )
    for change in plan.doable:
        done(change)


def _create(admin: AdminClient, created: Iterable[Create]) -> None:
    topics = [change.topic for change in created]
    new = [NewTopic(topic.name, topic.partitions, topic.replication, config=dict(topic.config)) for topic in topics]
    _results("creating topics", admin.create_topics(new, request_timeout=TIMEOUT_S), fine=KafkaError.TOPIC_ALREADY_EXISTS)


def _alterations(changed: Iterable[ChangeConfig]) -> list[ConfigResource]:
    by_topic: dict[str, list[ConfigEntry]] = {}
    for change in changed:
        by_topic.setdefault(change.topic, []).append(ConfigEntry(change.setting, change.new, incremental_operation=AlterConfigOpType.SET))
    return [ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries) for name, entries in by_topic.items()]


def _wait_until_led(admin: AdminClient, counts: Mapping[str, int]) -> None:
    """Return when every new partition's leader answers: a client that comes sooner is told that it does not exist."""
    partitions = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
    _offsets(admin, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def _results(doing: str, futures: Mapping[Any, Any], fine: int | None = None) -> dict[Any, Any]:
    """Wait for every answer; what the cluster refuses is said with the topic that it was about."""
    answers = {}
    for about, future in futures.items():
        try:
            answers[about] = future.result()
        except KafkaException as error:
            if error.args[0].code() != fine:
                raise ConfigurationError(
                    f"{doing}: {getattr(about, 'name', about)}: {error.args[0].str()}. Nothing was lost: mend that and apply again"
                ) from error
    return answers
