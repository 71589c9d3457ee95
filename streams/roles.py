"""Which agents a role runs. A role of the flow whose agents do not exist yet is not here, and is refused by name."""

from collections.abc import Sequence

from streams.errors import ConfigurationError
from streams.ladder.agent import LADDER
from streams.log.agent import Agent
from topology.flow import ROLES

AGENTS: dict[str, Sequence[Agent]] = {"ladder": [LADDER], "view": []}


def chosen(names: str | None) -> tuple[str, ...]:
    """The roles that a comma-separated list names; all there are when it is empty."""
    if not names:
        return tuple(AGENTS)
    roles = tuple(name.strip() for name in names.split(",") if name.strip())
    declared = {role.name for role in ROLES}
    for role in roles:
        if role not in declared:
            raise ConfigurationError(f"there is no role {role!r}: the roles are {', '.join(sorted(declared))}")
        if role not in AGENTS:
            raise ConfigurationError(
                f"role {role!r} is declared in the flow and has no agent in this version. Those that run: {', '.join(AGENTS)}"
            )
    return roles


def agents_of(roles: Sequence[str]) -> list[Agent]:
    """Their agents, in order."""
    return [agent for role in roles for agent in AGENTS[role]]
