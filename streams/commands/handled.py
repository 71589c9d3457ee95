"""How far a role has come with a topic, by what it has committed."""

from confluent_kafka import Consumer, KafkaException, TopicPartition

from streams.commands import cluster
from streams.commands.deliveries import Handled
from streams.log.offsets import Mark, unpack
from streams.settings import settings
from topology.flow import Role
from topology.topics import Topic


def handled_by(role: Role, topic: Topic) -> dict[int, Handled]:
    """How far a role has committed each partition of a topic."""
    consumer = Consumer({**cluster.kafka(), "group.id": f"{settings().topic_prefix}hookline-{role.name}", "enable.auto.commit": False})
    try:
        places = [TopicPartition(cluster.name(topic), number) for number in cluster.partitions_of(topic)]
        committed = consumer.committed(places, cluster.ASK_TIMEOUT_S)
    except KafkaException as error:
        raise cluster.unavailable(f"asking how far {role.name} has read", error) from error
    finally:
        consumer.close()
    return {place.partition: _read_to(Mark(place.offset, place.metadata or "")) for place in committed}


def _read_to(mark: Mark) -> Handled:
    if mark.offset < 0:
        return Handled()
    high, unfinished = unpack(mark)
    return Handled(mark.offset, high, unfinished)
