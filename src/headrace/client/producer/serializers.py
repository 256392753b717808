"""Serializers for keys and values.

A serializer is a function of one value, or an object with `serialize(topic, value)` or, as in kafka-python since 3.0,
`serialize(topic, headers, value)`. The latter may add to the list of headers.
"""

import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headrace.client.producer._send import SerializeMethod
from headrace.client.serialization import find_method

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T_contra = TypeVar("T_contra", contravariant=True, default=Any)
else:
    from typing import TypeVar  # has no defaults before Python 3.13

    T_contra = TypeVar("T_contra", contravariant=True)

__all__ = [
    "AnySerializer",
    "DoubleSerializer",
    "IntegerSerializer",
    "JsonSerializer",
    "LongSerializer",
    "Serializer",
    "SerializerWithHeaders",
    "StringSerializer",
    "prepare",
]


class Serializer(Protocol[T_contra]):
    """Converts keys or values to bytes."""

    def serialize(self, topic: str, data: T_contra, /) -> bytes | None:
        """Returns the bytes of a key or value, or None for a null."""


class SerializerWithHeaders(Protocol[T_contra]):
    """A serializer that also receives the record's headers, to which it may append."""

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: T_contra, /) -> bytes | None:
        """Returns the bytes of a key or value, or None for a null."""


AnySerializer: TypeAlias = Serializer[Any] | SerializerWithHeaders[Any] | Callable[[Any], bytes | None]
"""The serializers that the configs accept."""


class StringSerializer:
    """Encodes str, by default in UTF-8."""

    def __init__(self, encoding: str = "utf-8"):
        self._encoding = encoding

    def serialize(self, topic: str, data: str | None) -> bytes | None:  # noqa: ARG002
        return None if data is None else data.encode(self._encoding)


class JsonSerializer:
    """Compact JSON in UTF-8. None stays None: a tombstone deletes a key from a compacted topic, JSON `null` does
    not."""

    def serialize(self, topic: str, data: object) -> bytes | None:  # noqa: ARG002
        return None if data is None else json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


class _Struct:
    def __init__(self, layout: str):
        self._pack = struct.Struct(layout).pack

    def serialize(self, topic: str, data: float | None) -> bytes | None:  # noqa: ARG002
        return None if data is None else self._pack(data)


class IntegerSerializer(_Struct):
    """4 bytes, as Java's IntegerSerializer writes them."""

    def __init__(self) -> None:
        super().__init__(">i")


class LongSerializer(_Struct):
    """8 bytes, as Java's LongSerializer writes them."""

    def __init__(self) -> None:
        super().__init__(">q")


class DoubleSerializer(_Struct):
    """8 bytes, as Java's DoubleSerializer writes them."""

    def __init__(self) -> None:
        super().__init__(">d")


def prepare(serializer: Any) -> Any:
    """Returns the form in which `RecordAppender` calls a serializer: the function, or the method with its signature."""
    method, wants_headers = find_method(serializer, "serialize")
    return serializer if method is None else SerializeMethod(method, wants_headers)
