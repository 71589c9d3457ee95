"""One commit after another: what is finished goes into a transaction, and is settled when it is decided."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import structlog

from streams.errors import Aborted, Fatal, Unwritable
from streams.log.agent import Agent, World
from streams.log.port import Log, Position, Transaction
from streams.log.records import Outcome, Write
from streams.log.shard import Inlet, Shard
from streams.log.units import Unit

log_line = structlog.get_logger()


class Committer:
    """Takes finished units, and keeps those of a failed transaction to write them again. One commit at a time."""

    def __init__(self, agent: Agent, world: World, log: Log, writer: str) -> None:
        """`writer` names this process and no other, ever: marks that carry it are its own."""
        self._agent, self._world, self._log, self._writer = agent, world, log, writer
        self._batch: list[Unit] = []  # taken and not yet committed: written again after an abort
        self.commits = 0

    def is_idle(self) -> bool:
        """Whether nothing taken is still to be written."""
        return not self._batch

    async def commit(self, shards: Mapping[int, Shard], generation: Any) -> bool:
        """Write everything finished in one transaction. False: not now, the same Outcomes are written again."""
        units = self._take(shards)
        if not units:
            return True
        transaction = self._transaction(units, generation)
        try:
            await self._log.write(transaction)
        except Aborted as error:
            return self._will_try_again(units, error)
        except Unwritable as error:
            try:
                await self._dead_letter_unwritable(units, error)
            except Aborted as again:
                return self._will_try_again(units, again)
            return False
        self._settle(units, transaction)
        return True

    def _will_try_again(self, units: list[Unit], error: Aborted) -> bool:
        log_line.warning("commit.aborted", agent=self._agent.name, outcomes=len(units), reason=str(error))
        return False

    def _take(self, shards: Mapping[int, Shard]) -> list[Unit]:
        units = [unit for unit in self._batch if unit.inlet.shard.alive]
        for shard in shards.values():
            units.extend(shard.take())
        self._batch = units
        return units

    def _transaction(self, units: list[Unit], generation: Any) -> Transaction:
        writes: list[tuple[int, Write]] = []
        turns: dict[int, list[tuple[int, tuple[bytes, bytes | None]]]] = {}
        inlets: dict[Inlet, None] = {}
        for unit in units:
            inlet = unit.inlet
            inlets[inlet] = None
            number = inlet.shard.number
            assert unit.outcome is not None
            writes.extend((number, write) for write in unit.outcome.writes)
            if unit.changes:
                turns.setdefault(number, []).extend(unit.changes)
        changes = {number: dict(change for _, change in sorted(made, key=itemgetter(0))) for number, made in turns.items()}
        positions = [Position(i.topic, i.shard.number, i.offsets.mark(f"{self._writer}.{self.commits:x}")) for i in inlets]
        self.commits += 1
        return Transaction(writes, changes, positions, generation)

    def _settle(self, units: list[Unit], transaction: Transaction) -> None:
        by_inlet: dict[Inlet, list[Unit]] = {}
        for unit in units:
            by_inlet.setdefault(unit.inlet, []).append(unit)
        for (inlet, settled), position in zip(by_inlet.items(), transaction.positions, strict=True):
            inlet.shard.settle(settled)
            inlet.offsets.known = position.mark
        self._batch = []

    async def _dead_letter_unwritable(self, units: list[Unit], error: Unwritable) -> None:
        """Halve the records until the one that the broker refuses is found, and write its reference to the DLQ in its place."""
        suspects = [(unit, write) for unit in units for write in (unit.outcome.writes if unit.outcome else ())]
        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            suspects = suspects[len(half) :] if await self._takes(half) else half
        if not suspects or await self._takes(suspects):
            raise Fatal(f"{self._agent.name}: the broker refuses a transaction that has no records to blame: {error}") from error
        unit, offender = suspects[0]
        assert unit.outcome is not None and unit.record is not None
        reason = f"the broker refuses a record of {offender.bytes_at_most} bytes for {offender.topic.name}: {error}"
        log_line.error("record.unwritable", agent=self._agent.name, record=unit.record.reference, reason=reason)
        poison = self._agent.poison(unit.record, reason, self._world.now_ms())
        rest = [write for write in unit.outcome.writes if write is not offender]
        unit.outcome = Outcome([*rest, *poison.writes], unit.outcome.changes)

    async def _takes(self, suspects: list[tuple[Unit, Write]]) -> bool:
        return await self._log.probe([(unit.inlet.shard.number, write) for unit, write in suspects])
