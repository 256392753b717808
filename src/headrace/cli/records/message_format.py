"""Formatters and deserializers of `console-consumer`.

A name is Kafka's class name, with or without its package (`DefaultMessageFormatter`), or a Python object as
`module:name`. A user formatter is called with a record and returns the bytes to print. A class is instantiated with
the properties:

    class Csv:
        def __init__(self, properties: dict[str, str]): ...
        def __call__(self, record) -> bytes: ...
"""

import difflib
import importlib
import json
import struct
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Any, cast

import click

from headrace.cli.records import internal_records

Format = Callable[[Any], bytes]
Show = Callable[[bytes], bytes]

_TIMESTAMP_TYPES = {0: b"CreateTime", 1: b"LogAppendTime"}


def _number(code: str) -> Show:
    size = struct.calcsize(code)

    def show(data: bytes) -> bytes:
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes; expected {size}")
        return str(struct.unpack(code, data)[0]).encode()

    return show


_DESERIALIZERS: dict[str, Show] = {
    "StringDeserializer": bytes,
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": bytes,
    "ByteBufferDeserializer": bytes,
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "ShortDeserializer": _number(">h"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
    "BooleanDeserializer": lambda data: b"true" if data == b"\x01" else b"false",
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode())).encode(),
    "VoidDeserializer": lambda _: b"null",
}


def deserializer(name: str) -> Show:
    """Returns the function that converts a key or value into printable bytes."""
    if ":" in name:
        function = _import_object(name)

        def show(data: bytes) -> bytes:
            text = function(data)
            return text if isinstance(text, bytes) else str(text).encode()

        return show
    decode = _DESERIALIZERS.get(name.rpartition(".")[2])
    if decode is None:
        raise click.UsageError(
            f"Unknown deserializer {name!r}; expected {', '.join(_DESERIALIZERS)}, or module:function"
        )
    return decode


def formatter(name: str, properties: Mapping[str, str]) -> Format:
    if ":" in name:
        return _own_formatter(name, properties)
    factories: dict[str, Callable[[Mapping[str, str]], Format]] = {
        "DefaultMessageFormatter": DefaultFormatter,
        "LoggingMessageFormatter": DefaultFormatter,
        "NoOpMessageFormatter": lambda _: lambda _: b"",
        "OffsetsMessageFormatter": lambda _: _offset_commit,
        "GroupMetadataMessageFormatter": lambda _: _group_metadata,
        "TransactionLogMessageFormatter": lambda _: _transaction,
        "json": lambda _: json_line,
    }
    factory = factories.get(name.rpartition(".")[2])
    if factory is None:
        raise click.UsageError(f"Unknown formatter {name!r}; expected {', '.join(factories)}, or module:function")
    return factory(properties)


def _own_formatter(name: str, properties: Mapping[str, str]) -> Format:
    loaded: Any = _import_object(name)
    if isinstance(loaded, type):
        loaded = cast("Any", loaded)(dict(properties))
    return cast("Format", loaded)


def _import_object(name: str) -> Any:
    module, _, attribute = name.partition(":")
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"Cannot import {name!r}: {error}") from None
    finally:
        sys.path.remove("")


_FIELDS = ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")
_DESERIALIZER_KEYS = ("key.deserializer", "value.deserializer", "header.deserializer", "headers.deserializer")


class DefaultFormatter:
    """Prints the selected fields of each record, with separators, in one line."""

    def __init__(self, properties: Mapping[str, str]):
        defaults = {"key.separator": "\t", "line.separator": "\n", "headers.separator": ",", "null.literal": "null"}
        _check_names(properties, [*defaults, *(f"print.{name}" for name in _FIELDS), *_DESERIALIZER_KEYS])
        flags = {name: _flag(properties, f"print.{name}", name == "value") for name in _FIELDS}
        texts = {name: _unescape(properties.get(name, default)).encode() for name, default in defaults.items()}
        self._between, self._end = texts["key.separator"], texts["line.separator"]
        self._between_headers, self._null = texts["headers.separator"], texts["null.literal"]
        self._flags = flags
        self._show_key = deserializer(properties.get("key.deserializer", "StringDeserializer"))
        self._show_value = deserializer(properties.get("value.deserializer", "StringDeserializer"))
        self._show_header = deserializer(
            properties.get("header.deserializer", properties.get("headers.deserializer", "StringDeserializer"))
        )
        self._is_plain = [name for name, is_set in flags.items() if is_set] == ["value"] and self._show_value is bytes

    def __call__(self, record: Any) -> bytes:
        if self._is_plain:
            return (self._null if record.value is None else record.value) + self._end
        flags = self._flags
        fields: list[bytes] = []
        if flags["timestamp"]:
            kind = _TIMESTAMP_TYPES.get(record.timestamp_type)
            fields.append(b"NO_TIMESTAMP" if kind is None else b"%s:%d" % (kind, record.timestamp))
        if flags["partition"]:
            fields.append(b"Partition:%d" % record.partition)
        if flags["offset"]:
            fields.append(b"Offset:%d" % record.offset)
        if flags["epoch"]:
            fields.append(b"Epoch:NOT_PRESENT" if record.leader_epoch < 0 else b"Epoch:%d" % record.leader_epoch)
        if flags["headers"]:
            headers = [
                name.encode() + b":" + self._field_bytes(self._show_header, value) for name, value in record.headers
            ]
            fields.append(self._between_headers.join(headers) if headers else b"NO_HEADERS")
        if flags["key"]:
            fields.append(self._field_bytes(self._show_key, record.key))
        if flags["value"]:
            fields.append(self._field_bytes(self._show_value, record.value))
        return self._between.join(fields) + self._end

    def _field_bytes(self, show: Show, data: bytes | None) -> bytes:
        return self._null if data is None else show(data)


def _check_names(properties: Mapping[str, str], known_names: list[str]) -> None:
    """Raises a usage error for an unknown property. A deserializer may have properties of its own."""
    for name in properties:
        if name not in known_names and not name.startswith(tuple(f"{key}." for key in _DESERIALIZER_KEYS)):
            similar = difflib.get_close_matches(name, known_names, n=1)
            hint = f"Did you mean {similar[0]}?" if similar else f"Expected one of {', '.join(known_names)}"
            raise click.UsageError(f"Unknown formatter property {name!r}. {hint}")


def _flag(properties: Mapping[str, str], name: str, default: bool) -> bool:
    text = properties.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise click.UsageError(f"{name}={text}: expected true or false")
    return text.strip().lower() == "true"


def _unescape(text: str) -> str:
    return text.replace("\\t", "\t").replace("\\n", "\n").replace("\\0", "\0")


def json_line(record: Any) -> bytes:
    """Formats a record as one JSON object. Bytes that are not UTF-8 are decoded as Latin-1."""
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": [[name, _text(value)] for name, value in record.headers],
        "key": _text(record.key),
        "value": _text(record.value),
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _internal(key: tuple[int, dict[str, Any]], value: tuple[int, dict[str, Any]] | None) -> bytes:
    document = {
        "key": {"type": key[0], "data": key[1]},
        "value": None if value is None else {"version": value[0], "data": value[1]},
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _offset_commit(record: Any) -> bytes:
    key = None if record.key is None else internal_records.group_key(record.key)
    if key is None or "topic" not in key[1]:
        return b""
    return _internal(key, None if record.value is None else internal_records.offset_value(record.value))


def _group_metadata(record: Any) -> bytes:
    key = None if record.key is None else internal_records.group_key(record.key)
    if key is None or "topic" in key[1]:
        return b""
    return _internal(key, None if record.value is None else internal_records.group_value(record.value))


def _transaction(record: Any) -> bytes:
    key = None if record.key is None else internal_records.transaction_key(record.key)
    if key is None:
        return b""
    name = key[1]["transactionalId"]
    return _internal(key, None if record.value is None else internal_records.transaction_value(name, record.value))
