"""Two pipelines that show whether the log layer is exact: one counts, one has an effect and finishes out of order."""

from typing import Any, Protocol

from streams.log.agent import Agent
from streams.log.records import Outcome, Record, Work, Write
from streams.log.state import State
from topology.topics import Topic, changelog

IN = Topic("in", "What is counted.", "key", None)
OUT = Topic("out", "Each input once, with its number in its key's order.", "key", None)
POSTED = Topic("posted", "The same, once its effect has happened.", "key", None)
REFUSED = Topic("refused", "What could not be handled, by reference.", "reference", None)


def count(key: bytes | None, value: bytes | None, state: State, out: Topic) -> Outcome:
    """Number the inputs of each key: a lost one, a double one or a wrong order shows in the numbers."""
    assert key is not None and value is not None
    number = int(state.get(key) or b"0") + 1
    counted = str(number).encode()
    return Outcome([Write(out, key, counted + b" " + value)], [(key, counted)])


def poison(record: Record, reason: str, now_ms: int) -> Outcome:
    return Outcome([Write(REFUSED, record.reference.encode(), reason.encode())])


def plan_count(record: Record, state: State, now_ms: int) -> Outcome:
    return count(record.key, record.value, state, OUT)


class Sink(Protocol):
    async def post(self, value: bytes) -> None: ...


def plan_effect(record: Record, state: State, now_ms: int) -> list[Work[Any]]:
    return [Work((record.key, record.value))]


async def perform_effect(task: tuple[bytes, bytes], sink: Sink) -> None:
    await sink.post(task[1])


def conclude_effect(task: tuple[bytes, bytes], result: None, state: State, now_ms: int) -> Outcome:
    return count(*task, state, POSTED)


COUNTING = Agent("counting", [IN], [OUT, REFUSED], changelog("counting"), plan_count, poison)
EFFECT = Agent("effect", [IN], [POSTED, REFUSED], changelog("effect"), plan_effect, poison, perform_effect, conclude_effect)
OUTPUTS = {COUNTING.name: OUT, EFFECT.name: POSTED}
PIPELINES = {agent.name: agent for agent in (COUNTING, EFFECT)}
