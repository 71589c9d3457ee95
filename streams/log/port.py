"""The seam between the machine and the log: Kafka in `kafka.py`, a simulated one in `simulated/`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from streams.log.offsets import Mark
from streams.log.records import Write
from streams.log.state import Store
from topology.topics import Topic

Partition = tuple[Topic, int]


class Position(NamedTuple):
    """What to commit for one partition of a topic that is read."""

    topic: Topic
    partition: int
    mark: Mark


@dataclass(frozen=True)
class Transaction:
    """Everything that becomes true at once."""

    writes: Sequence[tuple[int, Write]]  # each with the partition it came from
    changes: Mapping[int, Mapping[bytes, bytes | None]]  # by shard: what its changelog gets, and then its store
    positions: Sequence[Position]
    generation: Any  # as it was told at the assignment


class Log(Protocol):
    """What the machine asks of the log. Everything else reaches it as calls: assigned, revoked, lost, offer."""

    async def marks(self, partitions: Sequence[Partition]) -> Mapping[Partition, Mark | None]:
        """What is committed, once every transaction that might still change it has ended; None where nothing is."""

    async def beginning(self, partition: Partition) -> int:
        """The first offset that there is."""

    async def open(self, shard: int) -> Store:
        """A shard's store, restored to the end of its changelog."""

    async def close_shard(self, shard: int) -> None:
        """The shard went elsewhere; its files stay as a warm start."""

    async def write(self, transaction: Transaction) -> None:
        """Commit, then store. Raises Aborted, Unwritable or Fatal; nothing is stored then."""

    async def probe(self, writes: Sequence[tuple[int, Write]]) -> bool:
        """Whether the broker takes these records, told by a transaction that is aborted."""

    def read_from(self, positions: Mapping[Partition, int], paused: Collection[Partition]) -> None:
        """Read these from now on, and nothing else; the paused ones when they are resumed."""

    def resume(self, partition: Partition, offset: int | None = None) -> None:
        """Read on, from where it was paused; `offset` where nothing was read of it yet."""

    def pause(self, partition: Partition) -> None:
        """Read no more of it for now."""
