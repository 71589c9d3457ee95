"""How long one payout takes when nothing else is asked: from the command's call to its final status as a reader sees it.

Beside it, what a record takes that is only written and read.
"""

import statistics
import time

from confluent_kafka import Consumer, Producer, TopicPartition

import schemas
from bench.ground import PARTITIONS, BenchmarkError, Ground
from bench.payouts import Commands, opened, submission, wait_until_open, workers
from bench.registry import Measured, benchmark, median_of
from topology import topics
from topology.topics import Topic

WARM, PAYOUTS = 20, 100
PAUSE_S = 0.05
TIMEOUT_S = 30


@benchmark(name="payout_ms_p50", unit="ms", target=80, better="lower")
def payout_ms_p50(ground: Ground) -> Measured:
    """Measure one after the other, with a pause between them."""

    def once(turn: int) -> Measured:
        part = ground.part(str(turn))
        group = opened(part)
        with workers(part) as running:
            wait_until_open(group, running)
            group.close()
            return Measured(statistics.median(payouts_ms(part)), statistics.median(bare_ms(part)))

    return median_of(ground, once, ".1f")


def payouts_ms(ground: Ground) -> list[float]:
    consumer, commands = reader(ground, topics.PAYOUT_STATUS), Commands(ground, **{"linger.ms": 0})
    took_ms = []
    for number in range(WARM + PAYOUTS):
        asked = submission(number)
        began_s = time.perf_counter()
        commands.send([asked])
        while schemas.decode(value_of(consumer), schemas.PAYOUT_STATUS)["state"] != "SUCCESS":
            pass
        took_ms.append((time.perf_counter() - began_s) * 1_000)
        time.sleep(PAUSE_S)
    consumer.close()
    return took_ms[WARM:]


def bare_ms(ground: Ground) -> list[float]:
    consumer = reader(ground, topics.PAYOUT_BATCH_STATUS)
    producer = Producer({"bootstrap.servers": ground.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    took_ms = []
    for _ in range(WARM + PAYOUTS):
        began_s = time.perf_counter()
        producer.produce(ground.name(topics.PAYOUT_BATCH_STATUS), b"nothing", b"key")
        producer.poll(0)
        value_of(consumer)
        took_ms.append((time.perf_counter() - began_s) * 1_000)
        time.sleep(PAUSE_S)
    producer.flush(TIMEOUT_S)
    consumer.close()
    return took_ms[WARM:]


def reader(ground: Ground, topic: Topic) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": ground.bootstrap,
            "group.id": ground.name(topic),
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(ground.name(topic), number, 0) for number in range(PARTITIONS)])
    return consumer


def value_of(consumer: Consumer) -> bytes:
    """The next record's."""
    message = consumer.poll(TIMEOUT_S)
    if message is None or message.error() is not None:
        raise BenchmarkError(f"waiting for the next record: none came in {TIMEOUT_S} s. Are the workers and the broker well?")
    return message.value() or b""
