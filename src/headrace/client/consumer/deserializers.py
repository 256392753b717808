"""Makers of keys and values from bytes: the counterparts of the producer's serializers.

A deserializer is a function of the bytes (None for a key or value that is null), or an object with
`deserialize(topic, data)`, or with `deserialize(topic, headers, data)`, as kafka-python has had it since 3.0.
"""

import json
import struct
from typing import Any, Protocol

from headrace.client.serialization import find_method

__all__ = [
    "Deserializer",
    "DoubleDeserializer",
    "IntegerDeserializer",
    "JsonDeserializer",
    "LongDeserializer",
    "StringDeserializer",
    "prepare",
]

Headers = list[tuple[str, bytes | None]]


class Deserializer(Protocol):
    def deserialize(self, topic: str, data: bytes | None) -> Any: ...


class StringDeserializer:
    def __init__(self, encoding: str = "utf-8"):
        self._encoding = encoding

    def deserialize(self, topic: str, data: bytes | None) -> str | None:  # noqa: ARG002
        return None if data is None else data.decode(self._encoding)


class JsonDeserializer:
    def deserialize(self, topic: str, data: bytes | None) -> Any:  # noqa: ARG002
        return None if data is None else json.loads(data)


class _Struct:
    def __init__(self, layout: str):
        self._unpack = struct.Struct(layout).unpack

    def deserialize(self, topic: str, data: bytes | None) -> Any:  # noqa: ARG002
        return None if data is None else self._unpack(data)[0]


class IntegerDeserializer(_Struct):
    """4 bytes, as Java's IntegerSerializer writes them."""

    def __init__(self) -> None:
        super().__init__(">i")


class LongDeserializer(_Struct):
    """8 bytes, as Java's LongSerializer writes them."""

    def __init__(self) -> None:
        super().__init__(">q")


class DoubleDeserializer(_Struct):
    """8 bytes, as Java's DoubleSerializer writes them."""

    def __init__(self) -> None:
        super().__init__(">d")


class _WithoutHeaders:
    """What the kernel calls, for a deserializer that wants no headers."""

    def __init__(self, deserializer: Deserializer):
        self._deserialize = deserializer.deserialize

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ARG002
        return self._deserialize(topic, data)


def prepare(deserializer: Any) -> Any:
    """A function of the bytes, or an object that is called with topic, headers and bytes."""
    method, wants_headers = find_method(deserializer, "deserialize")
    return deserializer if method is None or wants_headers else _WithoutHeaders(deserializer)
