"""What the replay agent asks of the log beside its inputs: records by offset, stretches, and where they begin and end."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from streams.log.records import Record
from topology.topics import Topic


class Stretch(NamedTuple):
    """Records of a part of a partition, where to go on, and how many were passed on the way."""

    records: Sequence[Record]
    next_offset: int
    looked_at: int


class Reader(Protocol):
    """Reads what is committed. It waits while the cluster is away."""

    async def bounds(self, topic: Topic, partition: int) -> tuple[int, int]:
        """The first offset that there is, and the end of what is committed."""

    async def offset_at(self, topic: Topic, partition: int, time_ms: int) -> int:
        """The first offset of this time or later; the end where there is none."""

    async def records(self, topic: Topic, partition: int, offsets: Sequence[int]) -> tuple[Mapping[int, Record], int]:
        """These records, fewer where some are gone, up to an offset: more would be too much to hold at once."""

    async def stretch(self, topic: Topic, partition: int, start: int, end: int, count: int, key: bytes | None = None) -> Stretch:
        """The next records from `start`, all or those of a key: at most `count`, and none from `end` on."""


async def last_offset(reader: Reader, topic: Topic, partition: int) -> int:
    """The last record's; what follows it are markers of transactions. -1 where there is none."""
    first, high = await reader.bounds(topic, partition)
    step = 32
    while high > first:
        low = max(first, high - step)
        found, place = -1, low
        while place < high:
            records, place, _ = await reader.stretch(topic, partition, place, high, step)
            found = records[-1].offset if records else found
        if found >= 0:
            return found
        high, step = low, step * 8
    return -1
