"""What a worker holds of one partition number: the inlets of all topics that the agent reads there, and their common state."""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any

from streams.log.offsets import Mark, Offsets
from streams.log.records import Record
from streams.log.state import State
from streams.log.units import Unit, committable
from topology.topics import Topic


class Inlet:
    """One topic's partition: records that were read and wait their turn, and the offsets of those handed out."""

    __slots__ = ("bytes", "end", "offsets", "paused", "queue", "records", "shard", "topic", "working")

    def __init__(self, shard: "Shard", topic: Topic, offsets: Offsets) -> None:
        self.shard = shard
        self.topic = topic
        self.offsets = offsets
        self.queue: deque[Record] = deque()
        self.records = 0  # read and not yet committed; with their bytes, what back pressure is measured on
        self.bytes = 0
        self.working = 0  # handed out to work that takes time; bounded by what a commit's metadata can name
        self.paused = False
        self.end = 0  # how far the log has been read: behind the last record lie markers, which are no records

    def admit(self, record: Record) -> None:
        """A record was read."""
        self.queue.append(record)
        self.records += 1
        self.bytes += len(record.value or b"")

    def release(self, record: Record) -> None:
        """A record is committed, or was done before it was read."""
        self.records -= 1
        self.bytes -= len(record.value or b"")

    def reach_end(self) -> bool:
        """Take the end of the log for the position where nothing waits; whether that is worth a commit."""
        if self.queue or self.end <= self.offsets.position:
            return False
        self.offsets.reach(self.end)
        return self.offsets.is_behind()

    def forget_unplanned(self) -> None:
        """What waits here is read again, from the first record that was not handed out."""
        self.end = 0
        while self.queue:
            self.release(self.queue.popleft())
        self.paused = False


class Shard:
    """One partition number, from the moment it is restored until it goes elsewhere."""

    __slots__ = ("alive", "finished", "inlets", "number", "reading", "state", "tasks")

    def __init__(self, number: int, state: State, reading: Any) -> None:
        """`reading` is the state as the agent's functions read it."""
        self.number = number
        self.state = state
        self.reading = reading
        self.inlets: dict[Topic, Inlet] = {}
        self.finished: list[Unit] = []  # in the order they were concluded
        self.tasks: dict[asyncio.Task[None], None] = {}  # ordered, so that a simulation is the same each time
        self.alive = True

    def open_inlet(self, topic: Topic, offsets: Offsets) -> Inlet:
        """Begin to take records of a topic."""
        inlet = self.inlets[topic] = Inlet(self, topic, offsets)
        return inlet

    def is_ours_still(self, marks: Mapping[tuple[Topic, int], Mark | None]) -> bool:
        """Whether nobody else has committed here since this worker last did, so that its work in flight is still its own."""
        return all(marks[topic, self.number] == inlet.offsets.known for topic, inlet in self.inlets.items())

    def take(self) -> list[Unit]:
        """The finished units that go into the next transaction, with their records' offsets."""
        if not self.finished:
            return []
        units, self.finished = committable(self.finished)
        for unit in units:
            unit.taken = unit.clear = True
            unit.waits_for = ()
            inlet = unit.inlet
            if unit.record is not None and unit.ends_its_record():
                unit.ends = True
                inlet.offsets.finish(unit.record.offset)
                if unit.counted:
                    inlet.working -= 1
        return units

    def settle(self, units: list[Unit]) -> None:
        """These units are committed and stored."""
        for unit in units:
            self.state.settle(unit)
            if unit.ends and unit.record is not None:
                unit.inlet.release(unit.record)

    def drop(self) -> None:
        """The partition went elsewhere: what is still in work here touches nothing any more."""
        self.alive = False
        for task in self.tasks:
            task.cancel()
