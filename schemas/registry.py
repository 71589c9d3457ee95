"""Takes schema ids from a schema registry, through confluent-kafka's client."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

import httpx
from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from schemas.catalogue import BUILT_IN, BUILT_IN_ID_MIN, Catalogue, Schema, parse
from schemas.codec import Codec
from schemas.ids import BuiltInIds, Ids
from streams.errors import ConfigurationError, MalformedRecord

TIMEOUT_S = 5
UNKNOWN_MAX = 1_000  # ids that the registry did not know and that are remembered
UNKNOWN_S = 60  # a registry that replicates may learn of an id a little after its first record


class RegistryIds:
    """The registry's ids. Each is asked for once and then known; a lookup blocks, for at most a few seconds."""

    def __init__(self, url: str, catalogue: Catalogue = BUILT_IN, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._client = SchemaRegistryClient({"url": url, "timeout": TIMEOUT_S, "max.retries": 2, "retries.wait.ms": 100})
        self._built_in = BuiltInIds(catalogue)
        self._ours = {schema.fingerprint: schema for schema in catalogue.by_id.values()}
        self._clock = clock
        self._numbers: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, Schema] = {}
        self._unknown: OrderedDict[int, float] = OrderedDict()

    def id_of(self, schema: Schema, topic: str) -> int:
        """Register the schema for the topic's values, which for one that is registered already only looks it up."""
        key = (schema.full_name + schema.fingerprint, topic)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._register(schema, f"{topic}-value")
            self._schemas[number] = schema
        return number

    def schema_of(self, schema_id: int) -> Schema:
        """Our own schema for a built-in id, and else the registry's."""
        if schema_id >= BUILT_IN_ID_MIN:
            return self._built_in.schema_of(schema_id)
        schema = self._schemas.get(schema_id)
        if schema is None:
            schema = self._schemas[schema_id] = self._look_up(schema_id)
        return schema

    def close(self) -> None:
        """End the client's connections."""
        self._client.close()

    def _register(self, schema: Schema, subject: str) -> int:
        try:
            return int(self._client.register_schema(subject, RegisteredSchema(schema.text, "AVRO")))
        except SchemaRegistryError as error:
            raise ConfigurationError(
                f"the schema registry refused {schema} for subject {subject}: {error.error_message} (code {error.error_code}). "
                f"Check the subject's compatibility level and our right to write to it"
            ) from error
        except httpx.HTTPError as error:
            raise self._silent(error) from error

    def _look_up(self, schema_id: int) -> Schema:
        asked = self._unknown.get(schema_id)
        if asked is not None and self._clock() - asked < UNKNOWN_S:
            raise _unknown_id(schema_id)
        try:
            return self._ours_or_parsed(schema_id, self._client.get_schema(schema_id))
        except SchemaRegistryError as error:
            if error.http_status_code != httpx.codes.NOT_FOUND:
                raise self._silent(error) from error
            self._remember_unknown(schema_id)
            raise _unknown_id(schema_id) from None
        except httpx.HTTPError as error:
            raise self._silent(error) from error

    def _ours_or_parsed(self, schema_id: int, found: RegisteredSchema) -> Schema:
        try:
            if found.schema_type != "AVRO" or found.schema_str is None:
                raise ConfigurationError(f"it is {found.schema_type}")
            schema = parse(found.schema_str)
        except ConfigurationError as error:
            self._remember_unknown(schema_id)
            raise MalformedRecord(f"schema id {schema_id} is not an Avro record's: {error}") from error
        return self._ours.get(schema.fingerprint, schema)

    def _remember_unknown(self, schema_id: int) -> None:
        self._unknown[schema_id] = self._clock()
        self._unknown.move_to_end(schema_id)
        if len(self._unknown) > UNKNOWN_MAX:
            self._unknown.popitem(last=False)

    def _silent(self, error: Exception) -> ConfigurationError:
        # Not a MalformedRecord: a registry that is down must stop the worker and not pour good records into the DLQ.
        where = _without_password(self._url)
        return ConfigurationError(f"the schema registry at {where} gives no answer ({error}): check that it is up, then start again")


def ids_from(registry_url: str | None) -> Ids:
    """Take the registry's ids where its URL is set, and else the built-in ones."""
    return RegistryIds(registry_url) if registry_url else BuiltInIds()


def codec_for(registry_url: str | None, topics: Mapping[Schema, Iterable[str]]) -> Codec:
    """Make a codec that knows every id it will write under; pass it to `schemas.use` when the process starts."""
    return Codec(ids_from(registry_url), topics)


def _unknown_id(schema_id: int) -> MalformedRecord:
    return MalformedRecord(f"schema id {schema_id} is unknown to the schema registry: its producer wrote with another one, or with none")


def _without_password(url: str) -> str:
    return str(httpx.URL(url.split(",", maxsplit=1)[0]).copy_with(username=None, password=None))
