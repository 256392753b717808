"""Deserializers, the counterparts of the producer's serializers.

A deserializer is one of:

- a function of the bytes (None for a null key or value)
- an object with `deserialize(topic, data)`
- an object with `deserialize(topic, headers, data)`, as in kafka-python since 3.0
"""

import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias

from headrace.client.serialization import find_method

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar  # has no defaults before Python 3.13

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)

__all__ = [
    "AnyDeserializer",
    "Deserializer",
    "DeserializerWithHeaders",
    "DoubleDeserializer",
    "IntegerDeserializer",
    "JsonDeserializer",
    "LongDeserializer",
    "StringDeserializer",
    "prepare",
]

Headers = list[tuple[str, bytes | None]]


class Deserializer(Protocol[T_co]):
    """Converts bytes to keys or values."""

    def deserialize(self, topic: str, data: bytes | None, /) -> T_co:
        """Returns the key or value. `data` is None for a null."""
        ...


class DeserializerWithHeaders(Protocol[T_co]):
    """A deserializer that also receives the record's headers."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None, /) -> T_co:
        """Returns the key or value. `data` is None for a null."""
        ...


AnyDeserializer: TypeAlias = Deserializer[T] | DeserializerWithHeaders[T] | Callable[[bytes], T]
"""The deserializers that the config accepts. A function is also called with None for a null. The annotation is lenient
so that functions such as `json.loads` fit."""


class StringDeserializer:
    """Decodes text, UTF-8 by default."""

    def __init__(self, encoding: str = "utf-8"):
        self._encoding = encoding

    def deserialize(self, topic: str, data: bytes | None) -> str | None:  # noqa: ARG002
        return None if data is None else data.decode(self._encoding)


class JsonDeserializer:
    """Parses JSON."""

    def deserialize(self, topic: str, data: bytes | None) -> Any:  # noqa: ARG002
        return None if data is None else json.loads(data)


class _Struct(Generic[T]):
    def __init__(self, layout: str):
        self._unpack = struct.Struct(layout).unpack

    def deserialize(self, topic: str, data: bytes | None) -> T | None:  # noqa: ARG002
        return None if data is None else self._unpack(data)[0]


class IntegerDeserializer(_Struct[int]):
    """Reads 4 bytes, as written by Java's IntegerSerializer."""

    def __init__(self) -> None:
        super().__init__(">i")


class LongDeserializer(_Struct[int]):
    """Reads 8 bytes, as written by Java's LongSerializer."""

    def __init__(self) -> None:
        super().__init__(">q")


class DoubleDeserializer(_Struct[float]):
    """Reads 8 bytes, as written by Java's DoubleSerializer."""

    def __init__(self) -> None:
        super().__init__(">d")


class _WithoutHeaders:
    """Adapts a deserializer without headers to the call that the record decoder makes."""

    def __init__(self, deserializer: Deserializer[Any]):
        self._deserialize = deserializer.deserialize

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ARG002
        return self._deserialize(topic, data)


def prepare(deserializer: Any) -> Any:
    """Returns a function of the bytes, or an object whose `deserialize` takes topic, headers and bytes."""
    method, wants_headers = find_method(deserializer, "deserialize")
    return deserializer if method is None or wants_headers else _WithoutHeaders(deserializer)
