"""What passes between the log and an agent: records handed out, work to do, and Outcomes taken back."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from topology.topics import Topic

Headers = Sequence[tuple[str, bytes]]
Change = tuple[bytes, bytes | None]
"""A key of the state and its new value; None forgets the key."""

Task = TypeVar("Task")


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record as it was read. `timestamp_ms` is the producer's time, or the broker's where the topic says so."""

    topic: Topic
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def reference(self) -> str:
        """Where the record is, as people write it."""
        return f"{self.topic.name}-{self.partition}@{self.offset}"


class Write(msgspec.Struct, frozen=True, gc=False):
    """One record to write. It goes to the partition it came from, unless it names one or asks to be placed by its key."""

    topic: Topic
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None

    @property
    def bytes_at_most(self) -> int:
        """What the broker will count for it, rounded up."""
        headers = sum(len(name) + len(value) + 10 for name, value in self.headers) if self.headers else 0
        return len(self.key or b"") + len(self.value or b"") + headers + RECORD_OVERHEAD_BYTES


BY_KEY = -1
"""A Write's partition when its topic is placed by key, as any producer would."""

RECORD_OVERHEAD_BYTES = 100


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What is true once a unit of work is finished: records to write, state changes. Committed whole or not at all."""

    writes: Sequence[Write] = ()
    changes: Sequence[Change] = ()


NOTHING = Outcome()


class Work(msgspec.Struct, Generic[Task], frozen=True):
    """One unit of work that a plan asks for. Its changes are seen by the next plan at once and committed with its Outcome."""

    task: Task
    changes: Sequence[Change] = ()


Planned = Outcome | Sequence[Work[Any]]
