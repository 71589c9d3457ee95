"""What an agent is: the topics it reads and writes, and three functions."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from streams.errors import ConfigurationError
from streams.log.records import Outcome, Planned, Record
from streams.log.state import State
from topology.topics import Topic


class World(Protocol):
    """Where effects happen: what perform may use, and the clock that plan and conclude are told."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""


Plan = Callable[[Record, Any, int], Planned]
Perform = Callable[[Any, Any], Awaitable[Any]]
Conclude = Callable[[Any, Any, Any, int], Outcome]
Poison = Callable[[Record, str, int], Outcome]


def same_state(state: State) -> State:
    """For agents that read their state as bytes."""
    return state


@dataclass(frozen=True)
class Agent:
    """An agent as data.

    plan(record, state, now_ms)            pure: an Outcome, or the units of Work to do
    perform(task, world)                   the one effect of a unit; it sees no state. An agent without effects has none
    conclude(task, result, state, now_ms)  pure: the unit's Outcome
    poison(record, reason, now_ms)         pure: the Outcome of a record that the others could not take
    expires_ms(key, value)                 pure: when a state entry is to be forgotten, if ever
    tick(state, now_ms)                    pure: once a second for each shard, what its state asks for without a record
    """

    name: str
    reads: Sequence[Topic]
    writes: Sequence[Topic]
    changelog: Topic
    plan: Plan
    poison: Poison
    perform: Perform | None = None
    conclude: Conclude | None = None
    state: Callable[[State], Any] = same_state
    drains: bool = True  # whether a stopping worker waits a while for what is in work
    expires_ms: Callable[[bytes, bytes], int | None] | None = None
    tick: Callable[[Any, int], Outcome] | None = None
    in_flight_max: int | None = None  # of one partition, where not the worker's: how many units at once are no burden
    shares: Mapping[Topic, int] = field(default_factory=dict)  # topics that get more than one share of what a worker may hold
    may_write: frozenset[Topic] = field(init=False)

    def __post_init__(self) -> None:
        """An effect without a conclusion, or one without the other's half, is a slip of the wiring."""
        if (self.perform is None) != (self.conclude is None):
            raise ConfigurationError(f"agent {self.name}: perform and conclude come together")
        object.__setattr__(self, "may_write", frozenset(self.writes))
