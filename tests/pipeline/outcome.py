"""What came out of a pipeline: the merchants' journal, and the topics as any reader sees them committed."""

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from confluent_kafka import Consumer, TopicPartition

import schemas
from topology import topics
from topology.topics import Topic

READ_MAX = 5_000
EVENT, ATTEMPT, SEQUENCE = "x-simpaisa-event-id", "x-simpaisa-delivery-attempt", "x-simpaisa-sequence"


class Arrival(NamedTuple):
    """A request as a merchant received it. Without a code it was not answered."""

    at_ms: float
    path: str
    event: str
    attempt: int
    sequence: int | None
    code: int | None


class Journal:
    """Everything that merchants received, in the order in which it came."""

    def __init__(self, path: Path) -> None:
        self.arrivals: list[Arrival] = []
        self.of: dict[tuple[str, str], list[Arrival]] = defaultdict(list)
        """By path and event."""
        self._file = path.open("rb")
        self._rest = b""

    def read(self) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            told = orjson.loads(line)
            headers = told["headers"]
            sequence = headers.get(SEQUENCE)
            arrival = Arrival(
                told["at_ns"] / 1e6, told["path"], headers[EVENT], int(headers[ATTEMPT]), int(sequence) if sequence else None, told["code"]
            )
            self.arrivals.append(arrival)
            self.of[arrival.path, arrival.event].append(arrival)

    def at(self, path: str) -> list[Arrival]:
        """What came to one endpoint."""
        return [arrival for arrival in self.arrivals if arrival.path == path]


class Outcome:
    """The last word on each delivery, every dead letter, and what operators were told."""

    def __init__(self, servers: str, prefix: str, partitions: int) -> None:
        self.status: dict[tuple[str, str], dict[str, Any]] = {}
        self.letters: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self._servers, self._prefix, self._partitions = servers, prefix, partitions
        self._takers: dict[str, Callable[[bytes], None]] = {
            prefix + topics.DELIVERY_STATUS.name: self._take_status,
            prefix + topics.DLQ.name: lambda value: self.letters.append(schemas.decode(value, schemas.DEAD_LETTER)),
            prefix + topics.OPERATIONAL_EVENTS.name: lambda value: self.told.append(schemas.decode(value, schemas.OPERATIONAL_EVENT)),
        }
        self._consumer = reader(servers, prefix)
        self._consumer.assign([TopicPartition(name, number, 0) for name in self._takers for number in range(partitions)])

    def read(self) -> None:
        """Take in what has been committed since."""
        while messages := self._consumer.consume(READ_MAX, 0.02):
            for message in messages:
                if message.error() is None:
                    self._takers[message.topic() or ""](message.value() or b"")
            if len(messages) < READ_MAX:
                return

    def _take_status(self, value: bytes) -> None:
        status = schemas.decode(value, schemas.DELIVERY_STATUS)
        self.status[status["event_id"], status["subscription_id"]] = status

    def state(self, event: str, subscription: str) -> str | None:
        """Where a delivery stands; None: nothing was said of it yet."""
        status = self.status.get((event, subscription))
        return None if status is None else status["state"]

    def summary(self) -> str:
        """Where all deliveries stand, for a person who asks why a test waits."""
        states = Counter((status["state"], status["waits_for"]) for status in self.status.values())
        return f"deliveries {dict(states)}, {len(self.letters)} dead letters, told {Counter(each['type'] for each in self.told)}"

    def waiting(self, topic: Topic) -> list[tuple[bytes, dict[str, bytes]]]:
        """Key and headers of every record of a topic."""
        consumer = reader(self._servers, self._prefix)
        places = [TopicPartition(self._prefix + topic.name, number, 0) for number in range(self._partitions)]
        consumer.assign(places)
        found: list[tuple[bytes, dict[str, bytes]]] = []
        ended = 0
        while ended < len(places):
            for message in consumer.consume(READ_MAX, 0.1):
                if message.error() is None:
                    found.append((message.key() or b"", dict(message.headers() or ())))  # type: ignore[arg-type]  # ours have values
                else:
                    ended += 1
        consumer.close()
        return found

    def close(self) -> None:
        self._consumer.close()


def reader(servers: str, prefix: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"{prefix}tests",  # never joined: librdkafka asks for a name
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
