"""Avro: values of one given schema, and Confluent's wire format with schemas from a local directory.

Confluent's wire format:

    0       magic byte 0
    1..4    schema id, int32 big-endian
    5..     the value in Avro's binary encoding

A directory maps schema ids to schemas: `<id>.avsc` is the schema with this id. A JSON file `{"<id>": <schema>}` does
the same. A new schema file is found without a restart.
"""

import functools
import io
import json
import struct
from pathlib import Path
from typing import Any

from headrace.common.errors import ConfigError
from headrace.common.extras import requires_extra
from headrace.console.decoders.decoder import DecodeError, Decoder

__all__ = ["avro_decoder", "avro_registry_decoder"]

_MAGIC_AND_ID = struct.Struct(">bi")


@functools.cache
def _fastavro() -> Any:
    with requires_extra("decoders"):
        import fastavro
    return fastavro


def _parse(schema: object, origin: str) -> Any:
    fastavro = _fastavro()
    try:
        return fastavro.parse_schema(schema, named_schemas={})
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise ConfigError(f"{origin} is not an Avro schema: {type(error).__name__}: {error}") from error


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error


def _read_value(schema: Any, data: bytes, start: int, name: str) -> object:
    stream = io.BytesIO(data)
    stream.seek(start)
    try:
        value = _fastavro().schemaless_reader(stream, schema, None)
    except Exception as error:  # fastavro raises whatever a wrong byte leads to
        raise DecodeError(f"{name}: the bytes do not fit the schema: {type(error).__name__}: {error}") from error
    left = len(data) - stream.tell()
    if left:
        raise DecodeError(f"{name}: {left} bytes are left after the value, so it has another schema")
    return value


def avro_decoder(name: str, path: Path) -> Decoder:
    """Returns a decoder of values that have exactly the schema in a file, without a header."""
    schema = _parse(_read_json(path), str(path))
    return Decoder(name, lambda data: _read_value(schema, data, 0, name), f"Avro with the schema in {path.name}")


class _Schemas:
    """Schemas by id. Owner of the cache: this object; a race of two threads parses a schema twice."""

    def __init__(self, path: Path):
        self._path = path
        self._parsed: dict[int, Any] = {}
        if not path.exists():
            raise ConfigError(f"{path} does not exist: expected a directory of <id>.avsc files, or a JSON file")

    def schema(self, schema_id: int) -> Any:
        if schema_id not in self._parsed:
            self._parsed[schema_id] = self._read(schema_id)
        return self._parsed[schema_id]

    def _read(self, schema_id: int) -> Any:
        if self._path.is_dir():
            file = self._path / f"{schema_id}.avsc"
            if not file.exists():
                raise DecodeError(f"schema {schema_id} is unknown: {self._path} has no file {file.name}")
            return _parse(_read_json(file), str(file))
        schemas = _read_json(self._path)
        if not isinstance(schemas, dict):
            raise ConfigError(f"{self._path} is not a JSON object of schemas by id")
        if str(schema_id) not in schemas:
            raise DecodeError(f"schema {schema_id} is unknown: {self._path} has no entry for it")
        schema = schemas[str(schema_id)]
        return _parse(json.loads(schema) if isinstance(schema, str) else schema, f"{self._path}: schema {schema_id}")


def avro_registry_decoder(name: str, path: Path) -> Decoder:
    """Returns a decoder of Confluent's wire format, with the schemas below a path."""
    schemas = _Schemas(path)
    _fastavro()

    def decode(data: bytes) -> object:
        if len(data) < _MAGIC_AND_ID.size:
            raise DecodeError(f"{name}: {len(data)} bytes are too few for magic byte and schema id")
        magic, schema_id = _MAGIC_AND_ID.unpack_from(data)
        if magic != 0:
            raise DecodeError(f"{name}: the first byte is {magic}, expected the magic byte 0")
        return _read_value(schemas.schema(schema_id), data, _MAGIC_AND_ID.size, name)

    return Decoder(name, decode, f"Avro in Confluent's wire format, with the schemas in {path.name}")
