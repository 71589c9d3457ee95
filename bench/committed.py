"""How fast a group gets on, seen from outside: the offsets that the broker has committed for it."""

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from bench.ground import PARTITIONS, BenchmarkError, Ground, Process

ASK_EVERY_S = 0.02
ASK_TIMEOUT_S = 10
COORDINATOR_UNKNOWN = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
WARM = 40_000
LEFT = 40_000
"""More than a worker reads ahead: 5,000 for each of 6 partitions."""
WATCH_S = 5.0


@dataclass(frozen=True)
class Seen:
    """What was committed at a moment. `commits` is the machine's own count, from its marks; 0 where a group has none."""

    at_s: float
    records: int
    commits: int


@dataclass(frozen=True)
class Pace:
    """How fast records were committed, and how many at a time."""

    records_per_s: float
    records_per_commit: float


class Group:
    """A group that is watched and never joined."""

    def __init__(self, ground: Ground, group: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": ground.bootstrap, "group.id": group, "isolation.level": "read_uncommitted"})
        self._places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def see(self) -> Seen:
        places = self._committed()
        return Seen(time.perf_counter(), sum(max(0, place.offset) for place in places), max(commits_of(place.metadata) for place in places))

    def _committed(self) -> list[TopicPartition]:
        """Ask again where a broker that has just been started does not know yet who coordinates the group."""
        deadline_s = time.perf_counter() + ASK_TIMEOUT_S
        while True:
            try:
                return self._consumer.committed(self._places, ASK_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() not in COORDINATOR_UNKNOWN or time.perf_counter() > deadline_s:
                    raise
                time.sleep(ASK_EVERY_S)

    def pace(self, process: Process, records: int, timeout_s: float) -> Pace:
        """Watch a process in full swing: from a while after its first commit, for some seconds or until too little is left.

        At the end of the records it would only finish what it had read before, and so look faster than it is.
        """
        deadline_s = time.perf_counter() + timeout_s
        began = self._wait(process, WARM, deadline_s, float("inf"))
        ended = self._wait(process, records - LEFT, deadline_s, began.at_s + WATCH_S)
        done = ended.records - began.records
        return Pace(done / (ended.at_s - began.at_s), done / max(1, ended.commits - began.commits))

    def _wait(self, process: Process, records: int, deadline_s: float, enough_s: float) -> Seen:
        while (seen := self.see()).records < records and seen.at_s < enough_s:
            process.check()
            if seen.at_s > deadline_s:
                raise BenchmarkError(f"waiting for {records} committed records: {seen.records} came. The process's log is {process.log}")
            time.sleep(ASK_EVERY_S)
        return seen

    def close(self) -> None:
        self._consumer.close()


def commits_of(metadata: str | None) -> int:
    """Read the count from a mark's metadata: its format, its writer with the count of its commits, its unfinished offsets."""
    words = (metadata or "").split(" ")
    return int(words[1].rsplit(".", 1)[1], 16) if len(words) == 3 and "." in words[1] else 0
