"""The schemas that we know: each avsc file, its earlier versions, and the id that every version keeps for good."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from streams.errors import ConfigurationError

# A schema registry counts up from 1 (or 100,001); ours begin near the top of its 32 bits, so that the two never meet
# and bytes written without a registry are still read when there is one.
BUILT_IN_ID_MIN = 2_000_000_001
ID_MAX = 2**31 - 1

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """One version of one record, parsed once."""

    name: str
    version: int
    full_name: str
    text: str
    parsed: dict[str, Any]
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.name} version {self.version}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every version of every schema in a folder, by id."""

    by_id: dict[int, Schema]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read `ids.json` and the files that it names; refuse a file that is not what its id has promised."""
        entries = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
        newest: dict[str, int] = {}
        for entry in entries.values():
            newest[entry["name"]] = max(newest.get(entry["name"], 0), entry["version"])
        by_id: dict[int, Schema] = {}
        for key, entry in entries.items():
            name, version = entry["name"], entry["version"]
            file = folder / f"{name}.avsc" if version == newest[name] else folder / "history" / f"{name}.{version}.avsc"
            by_id[_checked_id(int(key), folder)] = _promised(file, name, version, entry["fingerprint"])
        _refuse_strays(folder, newest)
        return cls(by_id)

    def current(self, name: str) -> Schema:
        """Return the version that is written today."""
        return self.versions(name)[-1]

    def versions(self, name: str) -> list[Schema]:
        """Every version of a record, oldest first."""
        found = sorted((schema for schema in self.by_id.values() if schema.name == name), key=lambda schema: schema.version)
        if not found:
            raise ConfigurationError(f"there is no schema named {name!r}: the catalogue has {', '.join(self.names())}")
        return found

    def names(self) -> list[str]:
        """Every record that there is."""
        return sorted({schema.name for schema in self.by_id.values()})

    def __iter__(self) -> Iterator[Schema]:
        """Go over what is written today, by name."""
        return iter([self.current(name) for name in self.names()])


def parse(text: str, name: str | None = None, version: int = 0) -> Schema:
    """Make a schema of its JSON text; version 0 is one that the catalogue does not hold."""
    try:
        parsed = fastavro.parse_schema(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SchemaParseException, UnknownType) as error:
        raise ConfigurationError(f"the Avro schema of {name or 'a record'} cannot be parsed: {error!r}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ConfigurationError(f"the Avro schema of {name or 'a record'} is not a record: records are all that topics carry")
    full_name = str(parsed["name"])
    return Schema(name or full_name.rpartition(".")[2], version, full_name, text, parsed, fingerprint(parsed))


def fingerprint(parsed: object) -> str:
    """Tell a parsed schema by what it does: all but its docs and layout. Defaults count, for readers depend on them."""
    canonical = json.dumps(_essence(parsed), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _essence(node: Any) -> Any:
    if isinstance(node, list):
        return [_essence(item) for item in node]
    if isinstance(node, dict):
        # Parsing has put each namespace into its names, and leaves marks of its own that begin with underscores.
        kept = {key: value for key, value in node.items() if key not in ("doc", "namespace") and not key.startswith("__")}
        return {key: value if key == "default" else _essence(value) for key, value in kept.items()}
    return node


def _promised(file: Path, name: str, version: int, promised: str) -> Schema:
    try:
        schema = parse(file.read_text(encoding="utf-8"), name, version)
    except FileNotFoundError:
        raise ConfigurationError(
            f"{file} is missing, and ids.json promises {name} version {version}: restore it from git; every version ever written is kept"
        ) from None
    if schema.fingerprint != promised:
        raise ConfigurationError(
            f"{file} is not the {name} version {version} that its id has promised. To change a schema: restore this file as "
            f"history/{name}.{version}.avsc, put the change into {name}.avsc, and add to ids.json, under the next free id, "
            f'{{"name": "{name}", "version": {version + 1}, "fingerprint": "{schema.fingerprint}"}}'
        )
    return schema


def _checked_id(number: int, folder: Path) -> int:
    if not BUILT_IN_ID_MIN <= number <= ID_MAX:
        raise ConfigurationError(f"{folder / 'ids.json'}: id {number} must be from {BUILT_IN_ID_MIN} to {ID_MAX}")
    return number


def _refuse_strays(folder: Path, newest: dict[str, int]) -> None:
    strays = sorted(file.stem for file in folder.glob("*.avsc") if file.stem not in newest)
    if strays:
        raise ConfigurationError(f"{folder}: {', '.join(strays)} have no id: add each to ids.json as version 1, under the next free id")


BUILT_IN = Catalogue.load(FOLDER)

BENEFICIARY = BUILT_IN.current("beneficiary")
DEAD_LETTER = BUILT_IN.current("dead_letter")
DELIVERY = BUILT_IN.current("delivery")
DELIVERY_STATUS = BUILT_IN.current("delivery_status")
EVENT = BUILT_IN.current("event")
LEDGER_TRANSFER = BUILT_IN.current("ledger_transfer")
OPERATIONAL_EVENT = BUILT_IN.current("operational_event")
PAYOUT_BATCH_STATUS = BUILT_IN.current("payout_batch_status")
PAYOUT_COMMAND = BUILT_IN.current("payout_command")
PAYOUT_REPLY = BUILT_IN.current("payout_reply")
PAYOUT_STATUS = BUILT_IN.current("payout_status")
PAYOUT_TASK = BUILT_IN.current("payout_task")
REPLAY_REQUEST = BUILT_IN.current("replay_request")
SUBSCRIPTION = BUILT_IN.current("subscription")
