"""What a plan asks to be done for a replay, and what came of it: the types between plan, perform and conclude."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streams.log.records import Record
from streams.replay.reading import Stretch
from streams.replay.request import Progress, Request
from streams.replay.state import Letter


@dataclass(frozen=True, slots=True)
class Run:
    """A replay at one of its steps, on one partition."""

    request: Request
    progress: Progress
    partition: int
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class Prepare(Run):
    """Find out where it begins and ends."""


@dataclass(frozen=True, slots=True)
class Wait(Run):
    """Let the index come to where the replay ends."""


class Meant(NamedTuple):
    """A dead letter of a page, and how many were looked at until it."""

    offset: int
    letter: Letter
    looked_at: int


@dataclass(frozen=True, slots=True)
class Page(Run):
    """The next dead letters that are meant, and where to go on after them."""

    letters: Sequence[Meant]
    looked_at: int
    cursor: int


@dataclass(frozen=True, slots=True)
class Events(Run):
    """The next part of the events."""


Task = Prepare | Wait | Page | Events


class Bounds(NamedTuple):
    """From where to where."""

    start: int
    end: int


class Refused(NamedTuple):
    """It cannot be run."""

    reason: str


class Found(NamedTuple):
    """The records of a page's letters up to an offset, and those that they refer to."""

    records: Mapping[int, Record]
    origins: Mapping[int, Record]
    up_to: int


Result = Bounds | Refused | Found | Stretch | None
"""None: nothing had to be read."""
