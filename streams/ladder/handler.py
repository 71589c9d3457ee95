"""Lets each waiting record go when its rung says so: to the next rung down, or back to where it is due."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streams.errors import MalformedRecord
from streams.ladder.rules import Ladder
from streams.log.records import Outcome, Record, Work, Write
from streams.log.state import State
from topology.flow import RETURNS
from topology.topics import Topic

DUE = "hookline-due-ms"
RETURN = "hookline-return"
HOPPED = "hookline-hopped-ms"
"""When the ladder moved a record on, by its own clock: were the broker's far behind, each rung would let go at once, over and over."""

RETURN_TOPICS = {topic.name: topic for topic in RETURNS}


@dataclass(frozen=True)
class Waiting:
    """A record on a rung. The ladder reads its headers and never its value."""

    record: Record
    due_ms: int
    returns_to: Topic
    wait_ms: int


class Sleeper(Protocol):
    """What waiting needs of the world."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""


class Keeper:
    """The ladder agent's functions, on a ladder of some scale."""

    def __init__(self, ladder: Ladder) -> None:
        self._ladder = ladder

    def plan(self, record: Record, state: State, now_ms: int) -> Outcome | Sequence[Work[Waiting]]:
        """Wait for as long as the rung holds the record; one that comes late goes on at once."""
        headers = dict(record.headers)
        due_ms, returns_to = _due(headers), _returns_to(headers)
        since_ms = max(record.timestamp_ms, _milliseconds(headers, HOPPED) if HOPPED in headers else 0)
        wait_ms = self._ladder.wait_ms(record.topic, since_ms, due_ms, now_ms)
        waiting = Waiting(record, due_ms, returns_to, wait_ms)
        return [Work(waiting)] if wait_ms else self.conclude(waiting, None, state, now_ms)

    async def perform(self, waiting: Waiting, world: Sleeper) -> None:
        """Let the time pass."""
        await world.sleep(waiting.wait_ms / 1000)

    def conclude(self, waiting: Waiting, result: None, state: State, now_ms: int) -> Outcome:
        """On to the next rung, or back; the record itself does not change."""
        record, rung = waiting.record, self._ladder.next_hop(waiting.due_ms, now_ms)
        headers = [header for header in record.headers if header[0] != HOPPED]
        if rung is None:
            return Outcome([Write(waiting.returns_to, record.key, record.value, headers)])
        return Outcome([Write(rung, record.key, record.value, [*headers, (HOPPED, b"%d" % now_ms)])])


def _due(headers: dict[str, bytes]) -> int:
    if DUE not in headers:
        raise MalformedRecord(f"a waiting record needs the header {DUE}: when it is due, in milliseconds since 1970")
    return _milliseconds(headers, DUE)


def _milliseconds(headers: dict[str, bytes], name: str) -> int:
    try:
        return int(headers[name])
    except ValueError:
        raise MalformedRecord(f"header {name} must be milliseconds since 1970, and is {headers[name][:40]!r}") from None


def _returns_to(headers: dict[str, bytes]) -> Topic:
    name = headers.get(RETURN, b"").decode(errors="replace")
    if name not in RETURN_TOPICS:
        raise MalformedRecord(f"header {RETURN} must name one of {', '.join(sorted(RETURN_TOPICS))}, and is {name[:80]!r}")
    return RETURN_TOPICS[name]
