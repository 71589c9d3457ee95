"""Simulated processes in a group: they join and leave, die at any step, freeze past their session, and come back as themselves."""

import asyncio
import contextlib
import contextvars
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any

from streams.errors import Fatal
from streams.log.agent import Agent, World
from streams.log.machine import Limits, Machine
from streams.log.simulated.cluster import Cluster, Generation, Group, Member, Reader
from streams.log.simulated.log import Faults, Gate, SimulatedLog, SimulatedStore, producer_of
from topology.ladder import RUNG_TOPICS

SESSION_S = 10.0
HEARTBEAT_S = 1.0
NOTICE_S_MAX = 0.3
TURNS_AFTER_EACH_STIR = 3
IDLE_S = 1_800.0
"""How often a machine has its turn while nothing is written that could concern it: a quiet day costs next to nothing."""

owner: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("owner", default=None)
member_ids = itertools.count(1)


def owned_tasks(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    """A task belongs to the process that made it, and dies with it."""
    task = asyncio.Task(work, loop=loop, **options)
    context = options.get("context")
    process = owner.get() if context is None else context.get(owner)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda done: process.tasks.pop(done, None))
    return task


class Process:
    """One worker process: its memory goes with it, its disk stays."""

    def __init__(self, host: "Host") -> None:
        self.host = host
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.gate = Gate()
        self.ended = asyncio.Event()

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start something in this process."""
        token = owner.set(self)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            owner.reset(token)

    def die(self) -> None:
        """kill -9."""
        self.gate.dead = True
        for task in list(self.tasks):
            task.cancel()
        self.ended.set()


class Host:
    """A place where one worker runs: its identity and its disk, and whichever process has them now."""

    def __init__(self, name: str, system: "System") -> None:
        self.name, self.system = name, system
        self.disk: dict[int, SimulatedStore] = {}
        self.process: Process | None = None
        self.epochs = itertools.count(1)
        self.missed: list[int] = []

    def start(self) -> None:
        """Start a process, which joins the group as the one it was."""
        process = self.process = Process(self)
        process.run(self._run(process))

    async def _run(self, process: Process) -> None:
        system = self.system
        agent, world = system.agent_of(process), system.world(process)
        log = SimulatedLog(agent, world, system.cluster, self.name, self.disk, process.gate, system.faults, system.chance)
        machine = Machine(agent, world, log, f"{self.name}.{next(self.epochs)}", system.limits)
        self.log, self.machine = log, machine
        process.run(log.read(machine))
        process.run(self._keep(agent, machine))
        system.join(self)
        try:
            await machine.run()
        except Fatal:
            process.die()
            system.restart_later(self)

    async def _keep(self, agent: Agent, machine: Machine) -> None:
        """Its turns: as often as the limits say after anything was written that could concern it, and rarely otherwise."""
        stirred, every_s = asyncio.Event(), self.system.limits.keep_every_s
        topics = frozenset(topic.name for topic in (*agent.reads, *agent.writes) if agent.tick is not None and topic not in RUNG_TOPICS)
        self.system.cluster.readers["turns of " + agent.name, self.name] = Reader(topics, stirred)
        while True:
            turns = 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stirred.wait(), IDLE_S)
                turns = TURNS_AFTER_EACH_STIR
            stirred.clear()
            for _ in range(turns):
                await asyncio.sleep(every_s)
                machine.take_turn()

    def tell_assigned(self, generation: Generation, numbers: Any) -> None:
        """The group gave us these."""
        assert self.process is not None
        epoch = next(self.epochs)
        self.log.assign(epoch)
        self.process.run(self.machine.assigned(epoch, generation, list(numbers)))


class System:
    """All hosts of one agent, their group, and the cluster."""

    def __init__(
        self,
        agent: Agent,
        partitions: int,
        hosts: int,
        seed: int,
        world: Callable[[Process], World],
        faults: Faults,
        limits: Limits,
        cluster: Cluster | None = None,
        agent_of: Callable[[Process], Agent] | None = None,
    ) -> None:
        """`world` makes a process's world, so that its effects end with it. Agents that feed each other share a cluster.

        `agent_of` makes a process's own agent, where its functions keep something in memory.
        """
        self.agent, self.world, self.faults, self.limits = agent, world, faults, limits
        self.agent_of = agent_of or (lambda process: agent)
        self.chance = random.Random(seed)
        self.cluster = cluster or Cluster()
        self.group = self.cluster.groups[agent.name] = Group(partitions)
        self.hosts = [Host(f"{agent.name}-w{n}", self) for n in range(hosts)]
        self.rebalanced_s: list[float] = []
        self._balancing: asyncio.Task[None] | None = None
        self._again = False
        asyncio.get_running_loop().set_task_factory(owned_tasks)  # type: ignore[arg-type]

    # The group's coordinator

    def join(self, host: Host) -> None:
        """A new member balances everybody; one that was here gets back what it had, and nobody else notices."""
        member = self.group.members.get(host.name)
        if member is None:
            self.group.members[host.name] = Member(next(member_ids))
            self.balance()
            return
        member.id = next(member_ids)
        if self._balancing is None:
            host.tell_assigned(Generation(self.group.generation, member.id), member.numbers)

    def balance(self) -> None:
        """Begin a rebalance, or one more after that under way."""
        if self._balancing is not None:
            self._again = True
            return
        self._balancing = asyncio.get_running_loop().create_task(self._balance(), context=contextvars.Context())

    async def _balance(self) -> None:
        while True:
            self._again = False
            await asyncio.gather(*(self._revoke(host) for host in self._members()))
            self.group.balance()
            self.rebalanced_s.append(asyncio.get_running_loop().time())
            for host in self._members():
                member = self.group.members[host.name]
                asyncio.get_running_loop().create_task(self._assign(host, Generation(self.group.generation, member.id)))
            if not self._again:
                break
        self._balancing = None

    def _members(self) -> list[Host]:
        return [host for host in self.hosts if host.name in self.group.members]

    async def _revoke(self, host: Host) -> None:
        """Wait until a member has noticed and rejoined, or its session is over."""
        await asyncio.sleep(self.chance.random() * HEARTBEAT_S)
        process = host.process
        if process is None or process.gate.dead:
            return
        host.log.unassign()
        revoking = process.run(self._revoke_in(host, process))
        done, _ = await asyncio.wait([revoking], timeout=SESSION_S)
        if not done and host.process is process:
            self.group.members.pop(host.name, None)

    async def _revoke_in(self, host: Host, process: Process) -> None:
        await process.gate.passed()
        await host.machine.revoked()
        await process.gate.passed()

    async def _assign(self, host: Host, generation: Generation) -> None:
        await asyncio.sleep(self.chance.random() * NOTICE_S_MAX)
        process = host.process
        if process is None or process.gate.dead:
            return
        process.run(self._assign_in(host, process, generation))

    async def _assign_in(self, host: Host, process: Process, generation: Generation) -> None:
        await process.gate.passed()
        member = self.group.members.get(host.name)
        if member is not None and generation == Generation(self.group.generation, member.id):
            host.tell_assigned(generation, member.numbers)

    # What happens to processes

    def kill(self, host: Host, restart_after_s: float) -> None:
        """kill -9, and start again after a while: within its session nobody notices, later it has lost its place."""
        if host.process is None or host.process.gate.dead:
            return
        host.process.die()
        self.restart_later(host, restart_after_s)

    async def leave(self, host: Host, drain_s: float) -> None:
        """SIGTERM: it finishes what it can. A static member says no farewell, so that its place is free when its session is over."""
        process = host.process
        if process is None or process.gate.dead:
            return
        host.log.unassign()
        stopping = process.run(host.machine.stop(drain_s))
        await asyncio.wait([stopping])
        process.die()
        await asyncio.sleep(SESSION_S)
        if host.process is process:
            self._expire(host)

    def restart_later(self, host: Host, after_s: float = 0.5) -> None:
        """What a supervisor does for a process that ended."""
        asyncio.get_running_loop().create_task(self._restart(host, after_s), context=contextvars.Context())

    async def _restart(self, host: Host, after_s: float) -> None:
        if after_s > SESSION_S:
            await asyncio.sleep(SESSION_S)
            self.cluster.time_out(producer_of(self.agent, host.name))
            self._expire(host)
            await asyncio.sleep(after_s - SESSION_S)
        else:
            await asyncio.sleep(after_s)
        host.start()

    async def freeze(self, host: Host, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after a while; past the session its place is gone, which it hears of later."""
        process = host.process
        if process is None or process.gate.dead:
            return
        process.gate.freeze()
        if seconds > SESSION_S:
            await asyncio.sleep(SESSION_S)
            self.cluster.time_out(producer_of(self.agent, host.name))
            if host.process is process:
                self._expire(host)
            await asyncio.sleep(seconds - SESSION_S)
        else:
            await asyncio.sleep(seconds)
        process.gate.thaw()
        await asyncio.sleep(self.chance.random() * HEARTBEAT_S)
        if host.process is process and not process.gate.dead and host.name not in self.group.members:
            host.log.unassign()
            host.machine.lost()
            self.join(host)

    def _expire(self, host: Host) -> None:
        if self.group.members.pop(host.name, None) is not None:
            self.balance()
