"""The catalogue: every schema is what its id has promised, and every version reads every other."""

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import avro.schema
import pytest

import schemas
from schemas.catalogue import BUILT_IN, FOLDER, Catalogue, Schema, fingerprint, parse
from schemas.compatibility import incompatibilities
from streams.errors import ConfigurationError

EVOLVED = Path(__file__).parent / "evolved"


def source(schema: Schema) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(schema.text)
    return parsed


def types_in(node: Any) -> Iterator[dict[str, Any]]:
    """Every record and enum written out in a schema."""
    if isinstance(node, dict):
        if node.get("type") in ("record", "enum"):
            yield node
        for child in node.values():
            yield from types_in(child)
    elif isinstance(node, list):
        for child in node:
            yield from types_in(child)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EVOLVED, tmp_path / "schemas"))


def test_every_schema_has_a_constant() -> None:
    for schema in BUILT_IN:
        assert getattr(schemas, schema.name.upper()) is schema


@pytest.mark.parametrize("name", BUILT_IN.names())
def test_every_version_reads_every_other(name: str) -> None:
    versions = BUILT_IN.versions(name)
    for older in versions:
        for newer in versions:
            assert incompatibilities(source(older), source(newer)) == [], f"{older} and {newer}"


@pytest.mark.parametrize("schema", list(BUILT_IN), ids=str)
def test_every_schema_is_one_that_apaches_own_parser_takes(schema: Schema) -> None:
    parsed = avro.schema.parse(schema.text)
    assert parsed.namespace == "hookline"  # type: ignore[attr-defined]


@pytest.mark.parametrize("schema", list(BUILT_IN), ids=str)
def test_every_record_enum_and_field_says_what_it_is(schema: Schema) -> None:
    for found in types_in(source(schema)):
        assert found.get("doc"), found["name"]
        for field in found.get("fields", []):
            assert field.get("doc"), f"{found['name']}.{field['name']}"


@pytest.mark.parametrize("schema", list(BUILT_IN), ids=str)
def test_every_enum_can_grow(schema: Schema) -> None:
    for found in types_in(source(schema)):
        if found["type"] == "enum":
            assert found["symbols"][0] == found["default"] == "UNKNOWN", found["name"]


@pytest.mark.parametrize("schema", list(BUILT_IN), ids=str)
def test_money_and_time_are_longs(schema: Schema) -> None:
    for found in types_in(source(schema)):
        for field in found.get("fields", []):
            if "_minor" in field["name"] or field["name"].endswith("_ms"):
                assert field["type"] in ("long", ["null", "long"], ["null", {"type": "array", "items": "long"}]), field["name"]


def test_a_type_of_the_same_name_is_the_same_in_every_file() -> None:
    seen: dict[str, str] = {}
    for schema in BUILT_IN:
        for found in types_in(source(schema)):
            bare = {key: value for key, value in found.items() if key != "namespace"}
            assert seen.setdefault(found["name"], fingerprint(bare)) == fingerprint(bare), f"{found['name']} in {schema.name}"


def test_the_package_ships_every_file_that_the_catalogue_reads() -> None:
    settings = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["schemas"]
    shipped = {file for pattern in patterns for file in FOLDER.glob(pattern)}
    assert {*FOLDER.rglob("*.avsc"), FOLDER / "ids.json"} <= shipped


def test_earlier_versions_are_kept(folder: Path) -> None:
    catalogue = Catalogue.load(folder)
    assert [schema.version for schema in catalogue.versions("refund")] == [1, 2]
    assert catalogue.current("refund").version == 2


def test_a_schema_changed_without_a_new_id_is_refused_and_told_how(folder: Path) -> None:
    file = folder / "refund.avsc"
    file.write_text(file.read_text().replace('"amount_minor", "type": "long"', '"amount_minor", "type": "int"'))
    with pytest.raises(ConfigurationError, match=r"history/refund\.2\.avsc.*\"version\": 3, \"fingerprint\": \"[0-9a-f]{16}\""):
        Catalogue.load(folder)


def test_a_changed_default_is_a_change_and_a_changed_doc_is_none(folder: Path) -> None:
    file = folder / "refund.avsc"
    file.write_text(file.read_text().replace("Unique.", "Unique, always."))
    Catalogue.load(folder)
    file.write_text(file.read_text().replace('"default": "UNKNOWN"', '"default": "OPEN"'))
    with pytest.raises(ConfigurationError):
        Catalogue.load(folder)


@pytest.mark.parametrize("schema", list(BUILT_IN), ids=str)
def test_a_schema_that_another_program_printed_is_the_same(schema: Schema) -> None:
    printed = str(avro.schema.parse(schema.text))
    assert printed != schema.text
    assert parse(printed).fingerprint == schema.fingerprint, "or a registry that prints it anew would cost every decode a resolution"


def test_a_lost_version_is_refused(folder: Path) -> None:
    (folder / "history" / "refund.1.avsc").unlink()
    with pytest.raises(ConfigurationError, match=r"refund\.1\.avsc is missing"):
        Catalogue.load(folder)


def test_a_schema_without_an_id_is_refused(folder: Path) -> None:
    shutil.copy(folder / "refund.avsc", folder / "stray.avsc")
    with pytest.raises(ConfigurationError, match="stray have no id"):
        Catalogue.load(folder)


def test_an_id_that_a_registry_could_give_is_refused(folder: Path) -> None:
    file = folder / "ids.json"
    file.write_text(file.read_text().replace("2000000001", "1"))
    with pytest.raises(ConfigurationError, match="id 1 must be"):
        Catalogue.load(folder)


def test_an_unknown_name_is_told_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match=r"no schema named 'evnt'.*event"):
        BUILT_IN.current("evnt")


@pytest.mark.parametrize(
    "text", ["", "[]", '"string"', '{"type": "record"}', '{"type": "record", "name": "A", "fields": [{"name": "b", "type": "C"}]}']
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse(text)
