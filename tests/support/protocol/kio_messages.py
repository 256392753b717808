"""Conversion to kio's classes, which exist per version and use timedeltas, datetimes, enums and tuples."""

import importlib
import importlib.util
import io
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default

from headrace.common.ids import ZERO_UUID
from headrace.protocol import Message

EPOCH = datetime.fromtimestamp(0, UTC)
ERROR_CODES = sorted(each.value for each in ErrorCode)


def kio_class(cls: type[Message], version: int) -> Any:
    module = cls.__module__.rpartition(".")[2]
    direction = cls.__name__.lower().removeprefix(module.replace("_", "")) or "data"
    return getattr(importlib.import_module(f"kio.schema.{module}.v{version}.{direction}"), cls.__name__)


def is_in_kio(cls: type[Message], version: int) -> bool:
    module = cls.__module__.rpartition(".")[2]
    try:
        return importlib.util.find_spec(f"kio.schema.{module}.v{version}") is not None
    except ModuleNotFoundError:
        return False


def kio_write(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_read(cls: Any, data: bytes) -> tuple[Any, int]:
    """Returns the entity and the number of bytes read."""
    return entity_reader(cls)(data, 0)


def to_kio(message: Message, cls: Any) -> Any:
    """Converts the values to a class of kio."""
    values = {}
    for field in fields(cls):
        has_unit = str(field.metadata.get("kafka_type")).startswith(("timedelta", "datetime"))
        value = getattr(message, f"{field.name}_ms" if has_unit else field.name)
        if isinstance(value, list):
            values[field.name] = tuple(_convert(each, field) for each in value)
        elif value is None and field.metadata.get("tag") is not None and field.default is not None:
            # An absent tagged struct, for which kio has a struct of defaults.
            values[field.name] = get_tagged_field_default(field)
        else:
            values[field.name] = _convert(value, field)
    return cls(**values)


def _convert(value: Any, field: Any) -> Any:
    kafka_type = field.metadata.get("kafka_type", "")
    if value is None:
        return None
    if isinstance(value, Message):
        return to_kio(value, _nested(field.type))
    if isinstance(value, UUID):
        return None if value == ZERO_UUID else UUID(int=value.int)
    if kafka_type == "error_code":
        return ErrorCode(value)
    if kafka_type.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else EPOCH + timedelta(milliseconds=value)
    return bytes(value) if isinstance(value, memoryview) else value


def _nested(annotation: Any) -> Any:
    """Returns the class inside a tuple or an optional."""
    while get_args(annotation):
        annotation = next(each for each in get_args(annotation) if each is not type(None) and each is not ...)
    return annotation
