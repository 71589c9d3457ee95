"""What the machine adds, at the median, to a record's way from producer to reader, when it is idle."""

import random
import statistics
import threading
import time
from collections import defaultdict

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.agents import IN, OUT, agent
from bench.feed import VALUE_BYTES
from bench.ground import PARTITIONS, BenchmarkError, Ground, Process
from bench.registry import Measured, benchmark, median_of
from topology.topics import Topic, changelog

RECORDS = 150
GAP_S_LEAST, GAP_S_MORE = 0.03, 0.04  # longer than the least time between commits: each record finds the machine idle
WARM_TIMEOUT_S = 30
ARRIVE_S = 10
BARE_BATCH = 500

PLAIN = Topic("plain", "Read as it was written, with nothing in between.", "none", None)
TURN_OF_MACHINE, TURN_OF_BARE = 101, 102


class Reader:
    """Reads outputs as a read_committed consumer, one poll a record, and notes how long each was under way; on its own thread."""

    def __init__(self, ground: Ground, topics: list[str]) -> None:
        self.ms: dict[bytes, list[float]] = defaultdict(list)
        self._consumer = Consumer(
            {
                "bootstrap.servers": ground.bootstrap,
                "group.id": ground.prefix + "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.min.bytes": 1,
                "fetch.wait.max.ms": 500,  # only how long the broker holds a fetch that finds nothing; it answers what arrives
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(PARTITIONS)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                leg, sent_ns, _ = (message.value() or b"").split(b" ", 2)
                self.ms[leg].append((time.perf_counter_ns() - int(sent_ns)) / 1e6)
        self._consumer.close()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()


class Way:
    """From a producer through whatever reads a topic to the reader, with random gaps in which everything comes to rest."""

    def __init__(self, ground: Ground, reader: Reader) -> None:
        self._producer = Producer({"bootstrap.servers": ground.bootstrap, "acks": "all", "linger.ms": 0})
        self._reader = reader
        self._chance = random.Random(9)

    def ms_p50(self, topic: str, leg: str, records: int, processes: list[Process]) -> float:
        """Send so many records to a topic, see all of them arrive, and take the median."""
        times = self._reader.ms[leg.encode()]
        times.clear()
        for number in range(records):
            stamped = f"{leg} {time.perf_counter_ns()} ".encode()
            self._producer.produce(topic, stamped.ljust(VALUE_BYTES, b"v"), stamped, number % PARTITIONS)
            self._producer.poll(0)
            time.sleep(GAP_S_LEAST + self._chance.random() * GAP_S_MORE)
        self._producer.flush(ARRIVE_S)
        deadline_s = time.perf_counter() + (ARRIVE_S if records == RECORDS else WARM_TIMEOUT_S)
        while len(times) < records:
            for process in processes:
                process.check()
            if time.perf_counter() > deadline_s:
                raise BenchmarkError(f"waiting for {records} records sent to {topic}: {len(times)} came")
            time.sleep(0.05)
        return statistics.median(times)


@benchmark(name="commit_added_ms_p50", unit="ms", target=10, better="lower")
def commit_added_ms_p50(ground: Ground) -> Measured:
    """Measure beside what a bare consume-and-transact loop adds in the machine's place."""
    measured, ways_in = agent("copy", TURN_OF_MACHINE), Topic("in-bare", "What the bare loop reads.", "number", None)
    ground.make([IN, OUT, PLAIN, ways_in, measured.changelog, changelog(f"bare-{TURN_OF_BARE}")])
    reader = Reader(ground, [ground.name(OUT), ground.name(PLAIN)])
    machine_arguments = ("--folder", str(ground.folder / measured.name), "--plan", "copy", "--turn", str(TURN_OF_MACHINE))
    bare_arguments = ("--loop", "transact", "--reads", ways_in.name, "--turn", str(TURN_OF_BARE), "--batch", str(BARE_BATCH))
    with (
        ground.process("added-machine", "bench.worker", *machine_arguments) as machine,
        ground.process("added-bare", "bench.bare", *bare_arguments) as bare,
    ):
        way = Way(ground, reader)

        def once(turn: int, records: int = RECORDS) -> Measured:
            plain = way.ms_p50(ground.name(PLAIN), "plain", records, [])
            through = way.ms_p50(ground.name(IN), "machine", records, [machine])
            around = way.ms_p50(ground.name(ways_in), "bare", records, [bare])
            ground.tell(f"p50 {plain:.2f} ms plain, {through:.2f} through the machine, {around:.2f} through the bare loop")
            return Measured(through - plain, around - plain)

        once(0, RECORDS // 6)  # warm
        result = median_of(ground, once, ".2f")
    reader.close()
    return result
