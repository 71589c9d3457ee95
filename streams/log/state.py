"""The state of one shard as plan and conclude see it: what is stored, under what is finished or planned and not yet committed."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Protocol

from sortedcontainers import SortedList

from streams.log.records import Change
from streams.log.units import Unit


class Store(Protocol):
    """What is committed of one shard's state, in the order of its keys."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All keys that begin with `prefix`, ascending; not those before `start`."""

    def after(self, key: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """The next keys after `key`, for walking through everything a little at a time."""


class State:
    """Reads for plan and conclude, and the overlay that the machine keeps for them."""

    __slots__ = ("_order", "_overlay", "_seen", "_store", "_turn")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._overlay: dict[bytes, tuple[int, bytes | None, Unit]] = {}
        self._order: SortedList[bytes] | None = None  # the overlay's keys in order, kept from the first scan on
        self._seen: list[Unit] = []
        self._turn = 0

    def get(self, key: bytes) -> bytes | None:
        """The newest value of a key."""
        entry = self._overlay.get(key)
        if entry is None:
            return self._store.get(key)
        if not entry[2].clear:
            self._seen.append(entry[2])
        return entry[1]

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """The newest values of all keys that begin with `prefix`, ascending, not before `start`. Use it up before the next change."""
        if self._order is None:
            self._order = SortedList(self._overlay)
        changed = list(takewhile(lambda key: key.startswith(prefix), self._order.irange(max(prefix, start))))
        stored = self._store.scan(prefix, start)
        return self._merged(changed, stored) if changed else stored

    def _merged(self, changed: Sequence[bytes], stored: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        behind = next(stored, None)
        for key in changed:
            while behind is not None and behind[0] < key:
                yield behind
                behind = next(stored, None)
            if behind is not None and behind[0] == key:
                behind = next(stored, None)
            value = self.get(key)
            if value is not None:
                yield key, value
        while behind is not None:
            yield behind
            behind = next(stored, None)

    # For the machine

    def seen(self) -> Sequence[Unit]:
        """The units whose unsure changes were read since it was last asked."""
        if not self._seen:
            return ()
        seen, self._seen = self._seen, []
        return seen

    def after(self, key: bytes, count: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """The next stored keys after `key`, less those that are being changed, whose turn comes again; and where to go on from."""
        found = self._store.after(key, count)
        return [entry for entry in found if entry[0] not in self._overlay], found[-1][0] if found else b""

    def change(self, unit: Unit, changes: Sequence[Change]) -> None:
        """Make a unit's changes visible to whoever reads next. Changing what an unsure unit changed means waiting for it."""
        for change in changes:
            key, value = change
            before = self._overlay.get(key)
            if before is not None and before[2] is not unit and not before[2].clear:
                unit.waits_for = (*unit.waits_for, before[2])
            elif before is None and self._order is not None:
                self._order.add(key)
            self._turn += 1
            self._overlay[key] = (self._turn, value, unit)
            unit.changes.append((self._turn, change))

    def settle(self, unit: Unit) -> None:
        """A unit's changes are stored: the overlay lets go of those that are still the newest."""
        for turn, (key, _) in unit.changes:
            entry = self._overlay.get(key)
            if entry is not None and entry[0] == turn:
                del self._overlay[key]
                if self._order is not None:
                    self._order.discard(key)
