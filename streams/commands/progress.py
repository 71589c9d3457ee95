"""How far replays have come: the records of replay-requests, folded. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from streams.errors import MalformedRecord

ENDED = frozenset({"FINISHED", "STOPPED", "REFUSED"})
"""A part that stands so does nothing more."""
AT_REST = ENDED | {"PAUSED"}
CONTROLS = frozenset({"PAUSE", "RESUME", "STOP"})


class Part(msgspec.Struct, frozen=True):
    """One partition's part of a replay, as the agent tells it."""

    standing: str
    turn: int = 0
    cursor: int = 0
    end: int = 0
    looked_at: int = 0
    matched: int = 0
    sent: int = 0
    skipped: int = 0
    reason: str | None = None

    @property
    def left(self) -> int:
        """Offsets that are still to be looked at; a few of them may be no records."""
        return 0 if self.standing in ENDED else max(0, self.end - self.cursor)


class Totals(msgspec.Struct, frozen=True):
    """The parts' counts together."""

    looked_at: int = 0
    left: int = 0
    matched: int = 0
    sent: int = 0
    skipped: int = 0


class Replay:
    """One replay: what was asked, what was asked of it since, and how far each partition has come."""

    def __init__(self, replay_id: str) -> None:
        self.id = replay_id
        self.request: Mapping[str, Any] | None = None
        """What began it; None: it has expired from the log, or is not read yet."""
        self.controls: list[Mapping[str, Any]] = []
        self.asked_of: set[int] = set()
        """The partitions that the request has reached."""
        self.parts: dict[int, Part] = {}

    def apply(self, partition: int, fields: Mapping[str, Any]) -> None:
        """Take in one record. What was told in an earlier turn changes nothing: it goes on no more."""
        if fields["action"] == "PROGRESS":
            if fields["progress"] is None:
                raise MalformedRecord(f"the progress of replay {self.id} tells none")
            part, known = Part(**fields["progress"]), self.parts.get(partition)
            if known is None or part.turn >= known.turn:
                self.parts[partition] = part
        elif fields["action"] in CONTROLS:
            if not any(_same(fields, known) for known in self.controls):  # each partition has a copy
                self.controls.append(fields)
        else:
            self.request = self.request or fields
            self.asked_of.add(partition)

    @property
    def totals(self) -> Totals:
        """All parts together."""
        parts = self.parts.values()
        return Totals(*(sum(getattr(part, name) for part in parts) for name in Totals.__struct_fields__))

    @property
    def standing(self) -> str:
        """Where all of it stands: ASKED while nobody has answered, RUNNING while a part runs, and at the end the worst of the parts."""
        standings = {part.standing for part in self.parts.values()}
        if not standings:
            return "ASKED"
        if self.unheard(self.asked_of) or not standings <= AT_REST:
            return "RUNNING"
        return next(each for each in ("PAUSED", "REFUSED", "STOPPED", "FINISHED") if each in standings)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.standing in ENDED

    @property
    def reasons(self) -> list[str]:
        """What the parts tell of refusals and of what was skipped, each once."""
        return list(dict.fromkeys(part.reason for _, part in sorted(self.parts.items()) if part.reason))

    def unheard(self, partitions: Iterable[int]) -> list[int]:
        """Those of the partitions whose part nobody has told anything of."""
        return sorted(set(partitions) - set(self.parts))

    def all_stand(self, partitions: Iterable[int], standings: frozenset[str]) -> bool:
        """Whether every part stands so."""
        return all(number in self.parts and self.parts[number].standing in standings for number in partitions)


class Replays:
    """All replays that the log still has."""

    def __init__(self) -> None:
        self.by_id: dict[str, Replay] = {}
        self.read_to: Mapping[int, int] = {}
        """Where to read on in each partition."""

    def apply(self, partition: int, fields: Mapping[str, Any]) -> None:
        """Take in one record."""
        self.by_id.setdefault(fields["id"], Replay(fields["id"])).apply(partition, fields)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one[name] == other[name] for name in ("action", "requested_by", "requested_ms"))


def why_not(verb: str, replay: Replay) -> str | None:
    """Say why a replay cannot be paused, resumed or stopped; None: it can. Resuming one that runs lets it begin anew where it is."""
    if replay.has_ended:
        return f"replay {replay.id} is {replay.standing}: nothing of it is left to {verb.lower()}"
    return None
