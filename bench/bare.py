"""The limits: the same work in bare loops on librdkafka, without state, order, fencing or anything else that is the machine's.

Run: python -m bench.bare --bootstrap B --prefix P --loop consume --records N
     python -m bench.bare --bootstrap B --prefix P --loop transact --turn N --batch N [--reads TOPIC] [--fill]
"""

import argparse
import signal
import sys
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.agents import IN, OUT
from bench.feed import produce
from bench.ground import PARTITIONS
from topology.topics import changelog

READ_MAX = 10_000
READ_S = 0.1
STEP_TIMEOUT_S = 10


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """Configure a consumer to go as fast as it can: by default it fetches nothing for a second once its queue is full."""
    return {
        "bootstrap.servers": options.bootstrap,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.queue.backoff.ms": 5,
    }


def consume(options: argparse.Namespace) -> None:
    """Read the topic from its beginning, and say the records a second from the first batch on."""
    consumer = Consumer({**reading(options), "group.id": options.prefix + "bare"})
    consumer.assign([TopicPartition(options.prefix + options.reads, number, 0) for number in range(PARTITIONS)])
    while not (first := consumer.consume(READ_MAX, READ_S)):
        pass
    began_s, timed = time.perf_counter(), options.records - len(first)
    left = timed
    while left > 0:
        left -= len(consumer.consume(min(READ_MAX, left), READ_S))
    print(timed / (time.perf_counter() - began_s))
    consumer.close()


def transact(options: argparse.Namespace) -> None:
    """Consume, write each record to the output and to a changelog, and commit, until told to stop."""
    group = f"{options.prefix}bare-{options.turn}"
    consumer = Consumer({**reading(options), "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([options.prefix + options.reads])
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "transactional.id": group,
            "retry.backoff.ms": 2,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(STEP_TIMEOUT_S)
    outputs = (options.prefix + OUT.name, options.prefix + changelog(f"bare-{options.turn}").name)
    while True:
        if messages := read(consumer, options.batch, options.fill):
            write(producer, consumer, messages, outputs)


def read(consumer: Consumer, batch: int, fill: bool) -> list[Message]:
    """Take a batch: full where records wait, or what is there as soon as anything is."""
    if fill:
        return list(consumer.consume(batch, READ_S))
    first = consumer.poll(READ_S)
    return [] if first is None else [first, *consumer.consume(batch, 0)]


def write(producer: Producer, consumer: Consumer, messages: list[Message], outputs: tuple[str, str]) -> None:
    """One transaction: output, changelog and offsets."""
    by_partition: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for message in messages:
        by_partition[message.partition()].append({"key": message.key(), "value": message.value()})
    ends = {message.partition(): message for message in messages}
    positions = [TopicPartition(str(last.topic()), int(number or 0), int(last.offset() or 0) + 1) for number, last in ends.items()]
    producer.begin_transaction()
    for partition, records in by_partition.items():
        for topic in outputs:
            produce(producer, topic, partition, list(records))
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), STEP_TIMEOUT_S)
    producer.commit_transaction(STEP_TIMEOUT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--loop", required=True, choices=("consume", "transact"))
    parser.add_argument("--reads", default=IN.name)
    parser.add_argument("--records", type=int)
    parser.add_argument("--turn", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--fill", action="store_true", help="wait for full batches")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    consume(options) if options.loop == "consume" else transact(options)


if __name__ == "__main__":
    main()
