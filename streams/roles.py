"""Which agents a role runs, and with what. A role of the flow whose agents do not exist yet is not here, and is refused by name."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import Any

from streams.delivery.agent import deliver, delivering, following, subscriptions_of
from streams.delivery.subscription import Subscriptions
from streams.errors import ConfigurationError
from streams.ladder.agent import ladder_agent
from streams.ladder.rules import Ladder
from streams.log.agent import Agent, World
from streams.payouts.agent import knowing, payouts, rules_of
from streams.payouts.beneficiaries import Beneficiaries
from streams.payouts.channels.agent import calling, channels
from streams.replay.agent import reading, replay
from streams.settings import Settings
from streams.world import SystemWorld
from topology.flow import ROLES

AGENTS: "dict[str, Callable[[Equipment], Sequence[Agent]]]" = {
    "deliver": lambda equipment: [deliver(equipment.settings, equipment.subscriptions)],
    "ladder": lambda equipment: [ladder_agent(Ladder(equipment.settings.time_scale))],
    "replay": lambda equipment: [replay(equipment.settings, equipment.subscriptions)],
    "payouts": lambda equipment: [payouts(equipment.beneficiaries, rules_of(equipment.settings))],
    "channels": lambda equipment: [channels(Ladder(equipment.settings.time_scale))],
    "view": lambda equipment: [],
}


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


class Equipment:
    """The agents of some roles in one worker, and the world that they share."""

    def __init__(self, roles: Sequence[str], settings: Settings, kafka: Mapping[str, Any]) -> None:
        self.settings: Settings = settings
        self._kafka = kafka
        self._roles = roles
        self.agents = [agent for role in roles for agent in AGENTS[role](self)]

    @cached_property
    def subscriptions(self) -> Subscriptions:
        """The table that deliveries are made from; only a worker that delivers needs the keys to its secrets."""
        return subscriptions_of(self.settings, opens_secrets="deliver" in self._roles)

    @cached_property
    def beneficiaries(self) -> Beneficiaries:
        """The table of whom payouts are made to."""
        return Beneficiaries()

    @asynccontextmanager
    async def world(self) -> AsyncIterator[World]:
        """Where their effects happen."""
        async with AsyncExitStack() as parts:
            world = SystemWorld()
            if "deliver" in self._roles:
                world = await parts.enter_async_context(delivering(self.settings, self._kafka, self.subscriptions))
            elif "replay" in self._roles:
                await parts.enter_async_context(following(self.settings, self._kafka, self.subscriptions))
            if "replay" in self._roles:
                world.reader = await parts.enter_async_context(reading(self.settings, self._kafka))
            if "payouts" in self._roles:
                await parts.enter_async_context(knowing(self.settings, self._kafka, self.beneficiaries))
            if "channels" in self._roles:
                world.channels = await parts.enter_async_context(calling(self.settings, world.now_ms))
            yield world
