"""One unit of work on its way from plan to commit, and which finished units may be committed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streams.log.records import Change, Outcome, Record

if TYPE_CHECKING:
    from streams.log.shard import Inlet


class Handout:
    """A record with several units: it is finished with its last one."""

    __slots__ = ("left",)

    def __init__(self, units: int) -> None:
        self.left = units


class Unit:
    """One unit of work. `waits_for` names units whose changes it saw before they were sure to be committed."""

    __slots__ = ("changes", "clear", "counted", "ends", "handout", "inlet", "outcome", "record", "taken", "waits_for")

    def __init__(self, inlet: "Inlet", record: Record | None, waits_for: "Sequence[Unit]" = (), handout: Handout | None = None) -> None:
        self.inlet = inlet
        self.record = record
        self.handout = handout
        self.waits_for = waits_for
        self.outcome: Outcome | None = None
        self.changes: list[tuple[int, Change]] = []  # each with its turn: changes are written in the order they were made
        self.clear = False  # finished, and nothing it saw can still be undone
        self.taken = False  # in a transaction, or committed
        self.counted = False  # one of its inlet's records in work
        self.ends = False  # taken as the last unit of its record

    def ends_its_record(self) -> bool:
        """Whether this is the last unit of its record to be taken."""
        if self.handout is None:
            return True
        self.handout.left -= 1
        return self.handout.left == 0


def committable(finished: list[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Splits finished units into those to commit now and those that must wait.

    A unit waits while one whose changes it saw is unfinished or waits itself. Units that saw each other's changes go together,
    so the answer is the largest set in which nobody waits for anybody outside.
    """
    if not any(unit.waits_for for unit in finished):
        return finished, []
    inside: set[Any] = set(finished)
    while True:
        before = len(inside)
        for unit in finished:  # in order: a chain of units that waited one for another falls in one pass
            if unit in inside and not all(other.taken or other in inside for other in unit.waits_for):
                inside.discard(unit)
        if len(inside) == before:
            return [unit for unit in finished if unit in inside], [unit for unit in finished if unit not in inside]
