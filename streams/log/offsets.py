"""Which offsets of one partition are done, when its records finish out of order.

What is committed is the first unfinished offset; the commit's metadata names the other unfinished ones below the highest
handed out, so whoever reads on skips what is done. Everything here is pure: no Kafka, no clock.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import NamedTuple

METADATA_BYTES_MAX = 4_096
"""What a broker takes for one partition (offset.metadata.max.bytes)."""

UNFINISHED_MAX = 800
"""Four bytes each at the worst, five characters for four bytes, and a line's worth for who wrote it: 800 fit, whatever the gaps."""

PACKED_BYTES_MAX = 3_200
"""As many fit where they lie close together, at a byte each."""

FORMAT = "1"


class Mark(NamedTuple):
    """A committed offset with its metadata, as the broker keeps it. Two equal marks are the same commit."""

    offset: int
    metadata: str


class Offsets:
    """One partition's offsets, from the mark it was taken over at until it goes elsewhere."""

    __slots__ = ("_inherited", "_inherited_high", "known", "position", "unfinished")

    def __init__(self, mark: Mark) -> None:
        """Take over at `mark`, whoever wrote it."""
        self.known: Mark | None = mark
        self.position = mark.offset
        self._inherited_high, self._inherited = unpack(mark)
        self.unfinished: dict[int, None] = {}  # handed out and not finished; ascending, since they are handed out so

    def hand_out(self, offset: int) -> bool:
        """Whether the record is still to be done; if so it is unfinished from now on."""
        if offset < self.position:
            return False
        self.position = offset + 1
        if offset < self._inherited_high and offset not in self._inherited:
            return False
        self.unfinished[offset] = None
        return True

    def can_name(self, count: int) -> bool:
        """Whether a mark can name so many unfinished ones, wherever they lie: a difference costs a byte, and one more for 128 at most."""
        return count <= UNFINISHED_MAX or count + (self.position - next(iter(self.unfinished), self.position)) // 128 < PACKED_BYTES_MAX

    def reach(self, end: int) -> None:
        """Everything up to `end` was read and handed out: what lies between the last record and there are markers of transactions."""
        self.position = max(self.position, end)

    def is_behind(self) -> bool:
        """Whether nothing is unfinished and a commit now would name a later offset than the last one did."""
        return not self.unfinished and (self.known is None or max(self.position, self._inherited_high) > self.known.offset)

    def finish(self, offset: int) -> None:
        """The record's last Outcome goes into the next commit."""
        del self.unfinished[offset]

    def mark(self, writer: str) -> Mark:
        """What to commit now. `writer` is never the same twice, so that a mark tells whose commit it is."""
        unfinished = list(self.unfinished)
        unfinished.extend(sorted(offset for offset in self._inherited if offset >= self.position))
        high = max(self.position, self._inherited_high)
        first = unfinished.pop(0) if unfinished else high
        return Mark(first, f"{FORMAT} {writer} {pack(first, unfinished, high)}")


def pack(first: int, unfinished: Iterable[int], high: int) -> str:
    """The unfinished offsets above `first` and then `high`, as differences of seven bits a byte."""
    packed, last = bytearray(), first
    for offset in (*unfinished, high):
        difference, last = offset - last, offset
        while difference > 127:
            packed.append(difference & 127 | 128)
            difference >>= 7
        packed.append(difference)
    return base64.b85encode(packed).decode()


def unpack(mark: Mark) -> tuple[int, frozenset[int]]:
    """The high and the unfinished offsets of a mark. A mark that is not ours (a reset by hand) has nothing done above it."""
    words = mark.metadata.split(" ")
    if len(words) != 3 or words[0] != FORMAT:
        return mark.offset, frozenset()
    try:
        packed = base64.b85decode(words[2])
    except (ValueError, binascii.Error):
        return mark.offset, frozenset()
    offsets, offset, difference, shift = [mark.offset], mark.offset, 0, 0
    for byte in packed:
        difference |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            offset += difference
            offsets.append(offset)
            difference = shift = 0
    high = offsets.pop()
    return high, frozenset(offsets) if high > mark.offset else frozenset()
