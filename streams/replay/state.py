"""What one shard of the replay agent knows: an index of the open dead letters in its partition, and the replays.

    l/<offset of dlq>   a dead letter that is open or acknowledged, without its payload
    i/<dead letter>     where its record is
    r/<request>         a replay: what was asked, and how far it has come
    x                   how far dlq has been read into the index

A dead letter leaves the index in the Outcome that sends it again, so it is sent once.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from streams.log.records import Change
from streams.log.state import State
from streams.replay.request import Progress
from streams.replay.rules import ENDED

DAY_MS = 24 * 3_600_000
LETTERS_KEPT_MS = 90 * DAY_MS
REPLAYS_KEPT_MS = 30 * DAY_MS
INDEXED = b"x"


class Letter(msgspec.Struct, frozen=True, array_like=True):
    """An open dead letter."""

    id: str
    kind: str
    reason: str
    merchant: str | None
    subscription_id: str | None
    event_type: str | None
    event_id: str | None
    source: str | None
    dead_ms: int
    triage: str


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a dead letter's record is, and when it died."""

    offset: int
    dead_ms: int


class Replay(msgspec.Struct, frozen=True, array_like=True):
    """What was asked, as the bytes of the request, and how far it has come; `is_ready` once its beginning and end are known."""

    request: bytes
    progress: Progress
    is_ready: bool
    updated_ms: int


_encode = msgspec.msgpack.Encoder().encode
_letter = msgspec.msgpack.Decoder(Letter).decode
_place = msgspec.msgpack.Decoder(Place).decode
_replay = msgspec.msgpack.Decoder(Replay).decode


class ReplayMemory:
    """One shard's state as the replay agent's rules read it."""

    def __init__(self, state: State) -> None:
        self._state = state

    def replay(self, replay_id: str) -> Replay | None:
        """A replay, if it is known."""
        found = self._state.get(b"r/" + replay_id.encode())
        return None if found is None else _replay(found)

    @property
    def indexed(self) -> int:
        """The offset before which all of dlq is in the index."""
        found = self._state.get(INDEXED)
        return 0 if found is None else int.from_bytes(found, "big")

    def letter(self, offset: int) -> Letter | None:
        """A dead letter that is still open."""
        found = self._state.get(_letter_key(offset))
        return None if found is None else _letter(found)

    def place(self, letter_id: str) -> Place | None:
        """Where an open dead letter is."""
        found = self._state.get(b"i/" + letter_id.encode())
        return None if found is None else _place(found)

    def letters(self, start: int, end: int) -> Iterator[tuple[int, Letter]]:
        """Open dead letters in the order of the log."""
        for key, value in self._state.scan(b"l/", _letter_key(start)):
            offset = int.from_bytes(key[2:], "big")
            if offset >= end:
                return
            yield offset, _letter(value)


def letter_of(fields: Mapping[str, Any]) -> Letter:
    """What the index keeps of a record of dlq."""
    return Letter(**{name: fields[name] for name in Letter.__struct_fields__})


# Changes


def indexed_change(offset: int) -> Change:
    """The index has come past this offset."""
    return INDEXED, (offset + 1).to_bytes(8, "big")


def opened(offset: int, letter: Letter) -> list[Change]:
    """A dead letter is in the index from now on."""
    return [(_letter_key(offset), _encode(letter)), (b"i/" + letter.id.encode(), _encode(Place(offset, letter.dead_ms)))]


def closed(offset: int, letter_id: str) -> list[Change]:
    """It is no part of the depth any more."""
    return [(_letter_key(offset), None), (b"i/" + letter_id.encode(), None)]


def replay_change(replay_id: str, replay: Replay) -> Change:
    """Where a replay stands from now on."""
    return b"r/" + replay_id.encode(), _encode(replay)


def expires_ms(key: bytes, value: bytes) -> int | None:
    """When an entry may be forgotten: a dead letter with its record, and a replay some time after its end."""
    if key[:2] == b"l/":
        return _letter(value).dead_ms + LETTERS_KEPT_MS
    if key[:2] == b"i/":
        return _place(value).dead_ms + LETTERS_KEPT_MS
    if key[:2] == b"r/":
        replay = _replay(value)
        return replay.updated_ms + REPLAYS_KEPT_MS if replay.progress.standing in ENDED else None
    return None


def _letter_key(offset: int) -> bytes:
    return b"l/" + offset.to_bytes(8, "big")
