"""The ladder agent: the wiring, and nothing else."""

from streams.dead_letters import dead_letter
from streams.ladder.handler import Keeper
from streams.ladder.rules import Ladder
from streams.log.agent import Agent
from streams.log.offsets import PACKED_BYTES_MAX
from topology import flow, topics
from topology.ladder import RUNGS


def ladder_agent(ladder: Ladder) -> Agent:
    """The agent, on a ladder of some scale."""
    keeper = Keeper(ladder)
    return Agent(
        flow.LADDER.name,
        reads=flow.LADDER.reads,
        writes=flow.LADDER.writes,
        changelog=topics.CHANGELOG_LADDER,
        plan=keeper.plan,
        perform=keeper.perform,
        conclude=keeper.conclude,
        poison=dead_letter,
        drains=False,
        in_flight_max=PACKED_BYTES_MAX,  # waiting costs memory only
        shares={RUNGS[0].topic: len(RUNGS) - 1},  # as much as all the others together: only there the order is not that of letting go
    )
