"""The agents that are measured: one that decides nothing, and one with a state change and an output for each record."""

from streams.log.agent import Agent, Plan
from streams.log.records import NOTHING, Outcome, Record, Write
from streams.log.state import State
from topology.topics import Topic, changelog

IN = Topic("in", "What is read.", "number", None)
OUT = Topic("out", "Each record again, from the agent that copies.", "number", None)


def plan_nothing(record: Record, state: State, now_ms: int) -> Outcome:
    return NOTHING


def plan_copy(record: Record, state: State, now_ms: int) -> Outcome:
    """Do what every exact agent does at the least: look whether this was seen before, remember it, and write."""
    assert record.key is not None
    if state.get(record.key) is not None:
        return NOTHING
    return Outcome([Write(OUT, record.key, record.value)], [(record.key, record.value)])


def poison(record: Record, reason: str, now_ms: int) -> Outcome:
    """End the worker: a record that cannot be planned here is a fault of the benchmark."""
    raise AssertionError(f"{record.reference}: {reason}")


PLANS: dict[str, Plan] = {"nothing": plan_nothing, "copy": plan_copy}


def agent(plan: str, turn: int) -> Agent:
    """Make a plan's agent for one repetition: its name is its group, which so begins at the first record again."""
    name = f"{plan}-{turn}"
    return Agent(name, [IN], [OUT], changelog(name), PLANS[plan], poison)


def group_of(prefix: str, measured: Agent) -> str:
    return f"{prefix}hookline-{measured.name}"
