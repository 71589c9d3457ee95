"""Dead letters as they stand: the letters of the dlq and what people did about them, folded, chosen and counted. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from streams.commands.requests import Selection

DEPTH = frozenset({"OPEN", "ACKNOWLEDGED"})
"""What nobody has dealt with yet."""
TRIAGE_FIELDS = ("triage", "triage_by", "triage_note", "triage_ms")
HEAVY = ("payload", "history", "headers")

Letter = Mapping[str, Any]


class Letters:
    """The dead letters by id. A list needs neither payloads nor histories, and a full DLQ has too many to keep."""

    def __init__(self, whole: Callable[[str], bool] = lambda _: False) -> None:
        """`whole` says which letters to keep all of."""
        self._whole = whole
        self.by_id: dict[str, Letter] = {}

    def apply(self, fields: Mapping[str, Any]) -> None:
        """Take in one record: a letter, or what was done about one, which repeats neither its payload nor its history."""
        known = self.by_id.get(fields["id"])
        if known is not None and is_triage(fields):
            self.by_id[fields["id"]] = {**known, **{name: fields[name] for name in TRIAGE_FIELDS}}
        elif self._whole(fields["id"]):
            self.by_id[fields["id"]] = fields
        else:
            self.by_id[fields["id"]] = {name: value for name, value in fields.items() if name not in HEAVY}

    def chosen(self, selection: Selection, triages: frozenset[str] = DEPTH) -> list[Letter]:
        """Those that are meant, the newest first."""
        found = [each for each in self.by_id.values() if each["triage"] in triages and is_meant(each, selection)]
        return sorted(found, key=lambda letter: (-letter["dead_ms"], letter["id"]))


def is_triage(fields: Mapping[str, Any]) -> bool:
    """Whether a record only tells what was done about a letter."""
    return fields["payload"] is None and not fields["history"] and (fields["triage"] != "OPEN" or fields["triage_ms"] is not None)


def is_meant(letter: Letter, selection: Selection) -> bool:
    """Whether all parts of a selection hold for a letter. It begins with `from_ms` and ends before `to_ms`."""
    for name, value in selection.parts().items():
        if name == "dead_letter_id":
            holds = letter["id"] == value
        elif name == "from_ms":
            holds = letter["dead_ms"] >= value
        elif name == "to_ms":
            holds = letter["dead_ms"] < value
        else:
            holds = letter[name] == value
        if not holds:
            return False
    return True


class Group(msgspec.Struct, frozen=True):
    """The letters of one reason."""

    reason: str
    open: int
    acknowledged: int
    subscriptions: int
    merchants: int
    oldest_ms: int
    newest_ms: int


def grouped(letters: Iterable[Letter]) -> list[Group]:
    """Group letters by their reason, the most frequent first."""
    by_reason: dict[str, list[Letter]] = {}
    for letter in letters:
        by_reason.setdefault(letter["reason"], []).append(letter)
    groups = [_group(reason, each) for reason, each in by_reason.items()]
    return sorted(groups, key=lambda group: (-(group.open + group.acknowledged), group.reason))


def _group(reason: str, letters: list[Letter]) -> Group:
    triages = Counter(letter["triage"] for letter in letters)
    times = [letter["dead_ms"] for letter in letters]
    return Group(
        reason,
        triages["OPEN"],
        triages["ACKNOWLEDGED"],
        len({letter["subscription_id"] for letter in letters} - {None}),
        len({letter["merchant"] for letter in letters} - {None}),
        min(times),
        max(times),
    )
