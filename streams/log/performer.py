"""Takes one record through plan, perform and conclude to its Outcome, whatever goes wrong on the way."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from streams.errors import Fatal, HooklineError, MalformedRecord
from streams.log.agent import Agent, World
from streams.log.records import NOTHING, RECORD_OVERHEAD_BYTES, Outcome, Planned, Record, Work
from streams.log.shard import Inlet, Shard
from streams.log.units import Handout, Unit

log_line = structlog.get_logger()


class Performer:
    """The three functions of one agent at work. State is read and changed only in plan and conclude, never across an await."""

    def __init__(
        self, agent: Agent, world: World, record_bytes_max: int, finished: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        """`finished` is told of every Outcome, `failed` of what no Outcome can mend."""
        self._agent, self._world, self._record_bytes_max = agent, world, record_bytes_max
        self._finished, self._failed = finished, failed

    def plan(self, inlet: Inlet, record: Record) -> None:
        """Begin a record that was handed out. What is no fault of the record ends the process."""
        try:
            self._plan(inlet, record)
        except Exception as error:  # noqa: BLE001 - a damaged store, or a refusal that fails itself: nobody else would hear of it
            self._failed(error)

    def _plan(self, inlet: Inlet, record: Record) -> None:
        shard = inlet.shard
        now_ms = self._world.now_ms()
        try:
            planned = self._checked(record, self._agent.plan(record, shard.reading, now_ms), now_ms)
        except Fatal:
            raise
        except Exception as error:  # noqa: BLE001 - a record that cannot be planned is dead-lettered, whatever is wrong with it
            planned = self._poisoned(record, error, now_ms)
        seen = shard.state.seen()
        if isinstance(planned, Outcome):
            self.finish(Unit(inlet, record, seen), planned)
            return
        if not planned:
            self.finish(Unit(inlet, record, seen), NOTHING)
            return
        inlet.working += 1
        handout = Handout(len(planned)) if len(planned) > 1 else None
        for work in planned:
            self._begin(Unit(inlet, record, seen, handout), work)

    def tick(self, shard: Shard) -> None:
        """Let the agent act without a record, where it has anything to do by itself."""
        if self._agent.tick is None:
            return
        try:
            outcome = self._agent.tick(shard.reading, self._world.now_ms())
            seen = shard.state.seen()
            if outcome is not NOTHING:
                self.finish(Unit(next(iter(shard.inlets.values())), None, seen), outcome)
        except Exception as error:  # noqa: BLE001 - it acts on its own state: no record is to blame, and nobody else would hear of it
            self._failed(error)

    def _checked(self, record: Record, planned: Planned, now_ms: int) -> Planned:
        """What a plan changes is refused like an Outcome, before anyone has seen it."""
        for work in () if isinstance(planned, Outcome) else planned:
            refused = self._refusal(Outcome((), work.changes)) if work.changes else None
            if refused is not None:
                log_line.error("outcome.refused", agent=self._agent.name, record=record.reference, reason=refused)
                return self._agent.poison(record, refused, now_ms)
        return planned

    def _begin(self, unit: Unit, work: Work[Any]) -> None:
        unit.counted = True
        shard = unit.inlet.shard
        if work.changes:
            shard.state.change(unit, work.changes)
        task = asyncio.get_running_loop().create_task(self._perform(unit, work.task))
        shard.tasks[task] = None
        task.add_done_callback(lambda done: self._performed(shard, done))

    def _performed(self, shard: Shard, task: asyncio.Task[None]) -> None:
        del shard.tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def _perform(self, unit: Unit, task: Any) -> None:
        perform, conclude = self._agent.perform, self._agent.conclude
        assert perform is not None and conclude is not None, f"agent {self._agent.name} plans work and has no perform"
        shard, record = unit.inlet.shard, unit.record
        assert record is not None
        try:
            result = await perform(task, self._world)
            if not shard.alive:
                return
            outcome = conclude(task, result, shard.reading, self._world.now_ms())
        except Fatal:
            raise
        except Exception as error:  # noqa: BLE001 - likewise: no fault of one record stops its partition
            outcome = self._poisoned(record, error, self._world.now_ms())
        if shard.alive:
            seen = shard.state.seen()
            if seen:
                unit.waits_for = (*unit.waits_for, *(other for other in seen if other is not unit))
            self.finish(unit, outcome)

    def finish(self, unit: Unit, outcome: Outcome) -> None:
        """A unit has its Outcome: the next plan sees its changes, and the next commit takes it."""
        shard = unit.inlet.shard
        if outcome is not NOTHING:
            refused = self._refusal(outcome)
            if refused is not None and unit.record is None:
                raise Fatal(f"{self._agent.name} asked, without a record, for what can never be written: {refused}")
            if refused is not None and unit.record is not None:
                log_line.error("outcome.refused", agent=self._agent.name, record=unit.record.reference, reason=refused)
                outcome = self._agent.poison(unit.record, refused, self._world.now_ms())
        unit.outcome = outcome
        if outcome.changes:
            shard.state.change(unit, outcome.changes)
        if unit.waits_for:
            unit.waits_for = tuple(other for other in unit.waits_for if not other.clear)
        if unit.waits_for and not unit.counted and unit.record is not None:
            unit.counted = True
            unit.inlet.working += 1
        unit.clear = not unit.waits_for
        shard.finished.append(unit)
        self._finished()

    def _refusal(self, outcome: Outcome) -> str | None:
        """Why an Outcome can never be written, told before anyone has seen it."""
        bytes_max, may_write = self._record_bytes_max, self._agent.may_write
        for write in outcome.writes:
            if write.topic not in may_write:
                return f"agent {self._agent.name} does not declare that it writes {write.topic.name}"
            if write.bytes_at_most > bytes_max:
                return f"record too large: {write.bytes_at_most} bytes for {write.topic.name}, at most {bytes_max} are taken"
        for key, value in outcome.changes:
            if len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES > bytes_max:
                return f"state too large: {len(value or b'')} bytes, at most {bytes_max} are taken"
            if key[:1] == b"\x00":
                return "a state key must not begin with a zero byte, which is the machine's own"
        return None

    def _poisoned(self, record: Record, error: Exception, now_ms: int) -> Outcome:
        reason = str(error) if isinstance(error, MalformedRecord) else f"{type(error).__name__}: {error}"
        log_line.warning(
            "record.poisoned", agent=self._agent.name, record=record.reference, reason=reason, exc_info=not isinstance(error, HooklineError)
        )
        return self._agent.poison(record, reason, now_ms)
