"""Says what keeps two versions of a schema from reading each other's bytes, by Avro's rules of resolution."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro

Avro = Any  # a schema as fastavro parses it: a name, a list of branches, or an object

# What a reader's type takes beside itself.
_PROMOTIONS: Mapping[str, frozenset[str]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def incompatibilities(old: Avro, new: Avro) -> list[str]:
    """Name every reason, with its path, for which new readers fail on old bytes or old readers on new ones; none is full compatibility."""
    backward = [f"the new schema cannot read the old one's bytes: {reason}" for reason in unreadable(reader=new, writer=old)]
    forward = [f"the old schema cannot read the new one's bytes: {reason}" for reason in unreadable(reader=old, writer=new)]
    return backward + forward


def unreadable(reader: Avro, writer: Avro) -> list[str]:
    """Name every reason for which `reader` may fail on bytes that `writer` wrote."""
    pair = _Pair({}, {})
    parsed_reader = fastavro.parse_schema(reader, pair.reader_names)
    parsed_writer = fastavro.parse_schema(writer, pair.writer_names)
    return pair.compare(parsed_reader, parsed_writer, "")


@dataclass(slots=True)
class _Pair:
    """Two schemas under comparison, with their named types; a type within itself is compared once."""

    reader_names: dict[str, Any]
    writer_names: dict[str, Any]
    seen: set[tuple[str, str]] = field(default_factory=set)

    def compare(self, reader: Avro, writer: Avro, path: str) -> list[str]:
        reader, writer = _resolved(reader, self.reader_names), _resolved(writer, self.writer_names)
        if isinstance(writer, list):
            return [reason for branch in writer for reason in self.compare(reader, branch, path)]
        if isinstance(reader, list):
            return self._compare_branches(reader, writer, path)
        kind, written = _kind(reader), _kind(writer)
        if kind != written:
            return [] if written in _PROMOTIONS.get(kind, ()) else [f"{path or '/'}: {written} does not read as {kind}"]
        if kind in ("record", "enum", "fixed") and not _same_name(reader, writer):
            return [f"{path or '/'}: {writer['name']} does not read as {reader['name']}, which has no such alias"]
        return self._compare_parts(kind, reader, writer, path)

    def _compare_branches(self, reader: list[Avro], writer: Avro, path: str) -> list[str]:
        answers = [(branch, self.compare(branch, writer, path)) for branch in reader]
        if any(not reasons for _, reasons in answers):
            return []
        # The branch of the same kind tells more than that there is none.
        for branch, reasons in answers:
            resolved = _resolved(branch, self.reader_names)
            if _kind(resolved) == _kind(writer) and (not isinstance(resolved, dict) or _same_name(resolved, writer)):
                return reasons
        return [f"{path or '/'}: the union has no branch that reads {_name(writer)}"]

    def _compare_parts(self, kind: str, reader: Avro, writer: Avro, path: str) -> list[str]:
        match kind:
            case "record":
                return self._compare_records(reader, writer, path)
            case "enum":
                return _compare_symbols(reader, writer, path)
            case "fixed" if reader["size"] != writer["size"]:
                return [f"{path}: a fixed of {writer['size']} bytes does not read as one of {reader['size']}"]
            case "array":
                return self.compare(reader["items"], writer["items"], f"{path}/items")
            case "map":
                return self.compare(reader["values"], writer["values"], f"{path}/values")
        return []

    def _compare_records(self, reader: Avro, writer: Avro, path: str) -> list[str]:
        names = (str(reader["name"]), str(writer["name"]))
        if names in self.seen:
            return []
        self.seen.add(names)
        written = {part["name"]: part for part in writer["fields"]}
        reasons: list[str] = []
        for part in reader["fields"]:
            here = f"{path}/{part['name']}"
            found = next((written[name] for name in (part["name"], *part.get("aliases", ())) if name in written), None)
            if found is not None:
                reasons += self.compare(part["type"], found["type"], here)
            elif "default" not in part:
                reasons.append(f"{here}: it is not in the bytes, and has no default")
        self.seen.discard(names)
        return reasons


def _resolved(schema: Avro, names: Mapping[str, Any]) -> Avro:
    return names.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Avro) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _name(schema: Avro) -> str:
    return str(schema.get("name", schema["type"])) if isinstance(schema, dict) else str(schema)


def _same_name(reader: dict[str, Any], writer: dict[str, Any]) -> bool:
    if "name" not in reader:
        return True
    # Avro compares the last part of a name, and aliases as they are written.
    return _last(reader["name"]) == _last(writer["name"]) or any(
        alias in (writer["name"], _last(writer["name"])) for alias in reader.get("aliases", ())
    )


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _compare_symbols(reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
    missing = sorted(set(writer["symbols"]) - set(reader["symbols"]))
    if not missing or "default" in reader:
        return []
    return [f"{path or '/'}: the enum has no symbol {', '.join(missing)}, and no default"]
