"""The ladder agent: the wiring, and nothing else."""

from streams.dead_letters import dead_letter
from streams.ladder.handler import conclude, perform, plan
from streams.log.agent import Agent
from topology import topics
from topology.flow import RETURNS
from topology.ladder import RUNG_TOPICS

LADDER = Agent(
    "ladder",
    reads=RUNG_TOPICS,
    writes=(*RETURNS, topics.DLQ, *RUNG_TOPICS),
    changelog=topics.CHANGELOG_LADDER,
    plan=plan,
    perform=perform,
    conclude=conclude,
    poison=dead_letter,
    drains=False,
)
