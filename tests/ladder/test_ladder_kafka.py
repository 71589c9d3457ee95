"""The ladder on real Kafka, at a size of seconds; `make prove ONLY=ladder` has the figures of a million records."""

import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ground import PARTITIONS, Ground, forget_topics
from streams.app import CHANNEL_BATCHES
from streams.ladder.rules import Ladder
from streams.log.machine import RECORDS_OF_ALL_MAX
from streams.log.source import READ_MAX
from tests.ladder.waiting import Sender, held, make_topics, now_ms, returned, working
from topology.broker import Broker
from topology.ladder import RUNGS

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PATIENCE_S = 120
FAR_MS = 80 * 3_600_000
HELD_MAX = RECORDS_OF_ALL_MAX // (2 * PARTITIONS * (len(RUNGS) - 1)) + CHANNEL_BATCHES * READ_MAX + 2 * READ_MAX
"""A rung's share of a partition, and what was on its way when it was full."""


@pytest.fixture
def standing(broker: Broker, prefix: str, tmp_path: Path) -> Iterator[Ground]:
    made = Ground(broker.bootstrap_servers, tmp_path, prefix, print)
    make_topics(made)
    yield made
    forget_topics(made)


def test_what_waits_comes_back_once_and_never_early_though_workers_are_killed_join_and_leave(standing: Ground) -> None:
    chance, sender = random.Random(7), Sender(standing, Ladder(10))

    def send_some() -> None:
        sender.send_steadily((chance.randrange(6_000) for _ in range(1_000)), 1_000)

    with working(standing, "w1", scale=10) as first:
        send_some()
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        send_some()
        with working(standing, "w1", scale=10):
            with working(standing, "w2", scale=10):
                send_some()
            send_some()
            sender.finish()
            back = returned(standing, sender.sent, PATIENCE_S)

    assert Counter(each.key for each in back) == Counter(b"%d" % number for number in range(sender.sent))
    assert min(each.late_ms for each in back) >= 0


def test_of_a_long_rung_a_worker_holds_no_more_than_its_share_and_the_shortest_goes_on_beside_it(standing: Ground) -> None:
    chance, sender, due_ms = random.Random(3), Sender(standing), now_ms() + FAR_MS
    with working(standing, "w1") as worker:
        for _ in range(20_000):
            sender.send_to(RUNGS[-1].topic, due_ms)
        sender.finish()
        for _ in range(500):
            sender.send(now_ms() + chance.randrange(3_000))
        sender.finish()
        back = returned(standing, 500, PATIENCE_S)
        heads = [each for name, each in held(worker).items() if name.startswith(RUNGS[-1].topic.name)]

    assert len(back) == len({each.key for each in back}) == 500
    assert min(each.late_ms for each in back) >= 0
    assert len(heads) == PARTITIONS and all(each["paused"] for each in heads)
    assert all(each["held"] <= HELD_MAX for each in heads)
