"""The cluster that commands speak to: how a client reaches it, what topics are called there, and records written to it."""

import asyncio
from collections.abc import Sequence

from confluent_kafka import KafkaException

from streams.errors import BrokerUnavailable, TopologyDrift
from streams.log.publisher import Published, Publisher
from streams.log.records import Write
from streams.settings import settings
from topology import reach
from topology.topics import Topic

ASK_TIMEOUT_S = 10.0


def kafka() -> dict[str, str | int]:
    """What a client is configured with; its own chatter is left to the errors that it raises."""
    return {**settings().kafka(reach.bootstrap_servers(settings())), "log_level": 0}


def name(topic: Topic) -> str:
    """Name a topic as the cluster does."""
    return topic.on_cluster(settings().topic_prefix)


def publisher() -> Publisher:
    """Open a publisher to the cluster."""
    return Publisher(kafka(), name)


async def write_all(writes: Sequence[Write]) -> list[Published | BaseException]:
    """Write records at once, and tell where each is or why it is not written."""
    async with publisher() as open_publisher:
        publishing = (open_publisher.publish(each.topic, each.key, each.value, each.headers, each.partition) for each in writes)
        return await asyncio.gather(*publishing, return_exceptions=True)


def partitions_of(topic: Topic) -> list[int]:
    """The partitions that a topic has on the cluster."""
    try:
        found = reach.admin_client(settings()).list_topics(name(topic), timeout=ASK_TIMEOUT_S).topics[name(topic)]
    except KafkaException as error:
        raise unavailable(f"looking for {name(topic)}", error) from error
    if found.error is not None or not found.partitions:
        raise TopologyDrift(f"looking for {name(topic)}: there is no such topic. Run `hookline topology apply`")
    return sorted(found.partitions)


def unavailable(doing: str, error: KafkaException) -> BrokerUnavailable:
    """What is told when the cluster gives no answer."""
    return BrokerUnavailable(
        f"{doing}: {error.args[0].str()}. Check HOOKLINE_BOOTSTRAP_SERVERS, or the local broker with `hookline broker status`"
    )
