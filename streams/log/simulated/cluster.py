"""A made-up Kafka cluster: partitions with transactions and their markers, and groups with generations and static members.

Only what a worker can notice is here, and it is here as Kafka does it: markers take offsets, a committed reader stops at the
first open transaction, offsets written in a transaction are unstable until it ends, and a stale generation is refused.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streams.errors import Aborted, Fatal
from streams.log.offsets import Mark
from streams.log.records import Headers

START_MS = 1_700_000_000_000
"""When every simulation begins."""

Place = tuple[str, int]
"""A topic's name and a partition."""


def brokers_now_ms() -> int:
    """The brokers' clock: the true time."""
    return START_MS + int(asyncio.get_running_loop().time() * 1000)


@dataclass(frozen=True)
class Reader:
    """Who wants to hear when something was written to one of these topics."""

    topics: frozenset[str]
    wake: asyncio.Event


@dataclass(eq=False)
class OpenTransaction:
    """What one producer writes, until it is committed or aborted."""

    first_offsets: dict[Place, int] = field(default_factory=dict)
    marks: dict[tuple[str, Place], Mark] = field(default_factory=dict)  # by group
    committed: bool | None = None


class Entry(NamedTuple):
    """One offset of a partition; a marker has no fields."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    transaction: OpenTransaction | None
    is_marker: bool = False
    appended_ms: int = 0  # by the brokers' clock, which nothing steps


class Generation(NamedTuple):
    """What a member knows itself by, from one assignment to the next."""

    number: int
    member: int


@dataclass
class Member:
    """One static member: its current self, and what it was given."""

    id: int
    numbers: Sequence[int] = ()


@dataclass
class Group:
    """One agent's members; every topic it reads has the same number of partitions."""

    partitions: int
    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    committed: dict[Place, Mark] = field(default_factory=dict)

    def balance(self) -> None:
        """Give each member its range, under the next generation."""
        self.generation += 1
        count = len(self.members)
        for index, (_, member) in enumerate(sorted(self.members.items())):
            share, extra = divmod(self.partitions, count)
            start = index * share + min(index, extra)
            member.numbers = range(start, start + share + (index < extra))


class Cluster:
    """The brokers. Everything in it survives every worker."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        """`clock` is the brokers' own, where it differs from the workers'."""
        self.clock = clock
        self.partitions: dict[Place, list[Entry]] = {}
        self.groups: dict[str, Group] = {}
        self.readers: dict[tuple[str, str], Reader] = {}  # by what they read for, and who they are: a restarted one takes its own place
        self._open: dict[Place, dict[OpenTransaction, int]] = {}
        self._epochs: dict[str, int] = {}
        self._transactions: dict[str, OpenTransaction] = {}

    # Partitions

    def append(
        self,
        place: Place,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        now_ms: int,
        transaction: OpenTransaction | None = None,
    ) -> int:
        """Write one record."""
        entries = self.partitions.setdefault(place, [])
        offset = len(entries)
        entries.append(Entry(offset, key, value, headers, now_ms, transaction, appended_ms=brokers_now_ms()))
        if transaction is None:
            self._pulse({place[0]})
        elif place not in transaction.first_offsets:
            transaction.first_offsets[place] = offset
            self._open.setdefault(place, {})[transaction] = offset
        return offset

    def end(self, place: Place) -> int:
        """The end as an uncommitted reader sees it."""
        return len(self.partitions.get(place, ()))

    def stable_end(self, place: Place) -> int:
        """The first offset of the oldest open transaction, or the end."""
        open_here = self._open.get(place)
        return min(open_here.values()) if open_here else self.end(place)

    def read(self, place: Place, start: int, count: int) -> Iterator[Entry]:
        """Committed records from `start`, among the next `count` offsets."""
        entries = self.partitions.get(place, [])
        for entry in entries[start : min(start + count, self.stable_end(place))]:
            if not entry.is_marker and (entry.transaction is None or entry.transaction.committed):
                yield entry

    # Producers

    def begin_epoch(self, producer: str) -> int:
        """A producer comes (again): its older self is fenced, and what that left open is aborted."""
        self._epochs[producer] = self._epochs.get(producer, 0) + 1
        if producer in self._transactions:
            self.end_transaction(producer, self._epochs[producer], commit=False)
        return self._epochs[producer]

    def transaction(self, producer: str, epoch: int) -> OpenTransaction:
        """The producer's open transaction, begun if there is none."""
        self._check_epoch(producer, epoch)
        return self._transactions.setdefault(producer, OpenTransaction())

    def time_out(self, producer: str) -> None:
        """The coordinator's patience with an open transaction is over."""
        if producer in self._transactions:
            self.begin_epoch(producer)

    def end_transaction(self, producer: str, epoch: int, commit: bool) -> None:
        """Decide a transaction; asking again for the same is harmless."""
        self._check_epoch(producer, epoch)
        transaction = self._transactions.pop(producer, None)
        if transaction is None:
            return
        transaction.committed = commit
        for place in transaction.first_offsets:
            entries = self.partitions[place]
            entries.append(Entry(len(entries), None, None, (), 0, transaction, is_marker=True))
            del self._open[place][transaction]
        if commit:
            for (group, place), mark in transaction.marks.items():
                self.groups[group].committed[place] = mark
        self._pulse({topic for topic, _ in transaction.first_offsets})

    def _check_epoch(self, producer: str, epoch: int) -> None:
        if self._epochs[producer] != epoch:
            raise Fatal(f"producer {producer} is fenced")

    # Groups

    def add_offsets(
        self, transaction: OpenTransaction, group: str, instance: str, generation: Generation, place: Place, mark: Mark
    ) -> None:
        """Commit an offset with the transaction, if the generation is the group's."""
        found = self.groups[group]
        member = found.members.get(instance)
        if member is not None and member.id > generation.member and found.generation == generation.number:
            raise Fatal(f"member {instance} is fenced by its younger self")
        if member is None or found.generation != generation.number:
            raise Aborted("stale generation")
        transaction.marks[group, place] = mark

    def marks_are_stable(self, group: str, places: Sequence[Place]) -> bool:
        """Whether no open transaction holds offsets for any of these."""
        return not any((group, place) in transaction.marks for transaction in self._transactions.values() for place in places)

    def _pulse(self, topics: set[str]) -> None:
        for reader in self.readers.values():
            if not reader.topics.isdisjoint(topics):
                reader.wake.set()
