"""Which id a schema is written under, and which schema an id means, when there is no registry."""

from typing import Protocol

from schemas.catalogue import BUILT_IN, Catalogue, Schema
from streams.errors import MalformedRecord


class Ids(Protocol):
    """Where ids come from. Both answers are asked for once and remembered by the codec."""

    def id_of(self, schema: Schema, topic: str) -> int:
        """Tell which id records of `topic` are written under."""

    def schema_of(self, schema_id: int) -> Schema:
        """Tell which schema was written under an id; MalformedRecord when there is none."""


class BuiltInIds:
    """The ids of `ids.json`: the same everywhere, without asking anybody."""

    def __init__(self, catalogue: Catalogue = BUILT_IN) -> None:
        self._schemas = catalogue.by_id
        self._numbers = {schema: number for number, schema in catalogue.by_id.items()}

    def id_of(self, schema: Schema, topic: str) -> int:
        """Tell the schema's own id, whatever the topic."""
        return self._numbers[schema]

    def schema_of(self, schema_id: int) -> Schema:
        """Tell the catalogue's schema."""
        schema = self._schemas.get(schema_id)
        if schema is None:
            raise MalformedRecord(
                f"schema id {schema_id} is not a built-in one: if its producer uses a schema registry, set HOOKLINE_SCHEMA_REGISTRY_URL"
            )
        return schema
