"""Plain Kafka clients for the tests: topics made, and everything of a topic read as a committed reader sees it."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from topology import cluster_admin
from topology.cluster import Create, Plan, Wanted
from topology.topics import Topic


def create(admin: AdminClient, prefix: str, partitions: int, *topics: Topic) -> None:
    """Make topics, and return when every partition has a leader that answers."""
    wanted = [Wanted(prefix + topic.name, partitions, 1, topic.config(1), by_merchant=True) for topic in topics]
    cluster_admin.apply(admin, Plan(tuple(Create(topic) for topic in wanted)), lambda _: None)


def read_to_end(kafka: Mapping[str, Any], topic: str, partitions: int) -> list[tuple[bytes, bytes]]:
    """Keys and values of all committed records of a topic, in order within each partition; none of them is None here."""
    consumer = Consumer({**kafka, "group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    records: list[tuple[bytes, bytes]] = []
    ended: set[int | None] = set()
    while len(ended) < partitions:
        for message in consumer.consume(1_000, 0.1):
            error = message.error()
            if error is None:
                records.append((message.key() or b"", message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise AssertionError(f"reading {topic}: {error.str()}")
    consumer.close()
    return records
