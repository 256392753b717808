"""What a decoder is, and how its result becomes text.

A decoder is a function from bytes to an object that JSON can express, with a name. `render` turns the object into text:
a string is its own text, everything else becomes JSON. Numbers stay exact in the text, also beyond 2**53, which
browsers would round.
"""

import base64
import datetime
import decimal
import json
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.common.errors import HeadraceError

__all__ = ["DecodeError", "Decoder", "Rendered", "to_json_value", "to_text"]

_MAX_DEPTH = 200


class DecodeError(HeadraceError):
    """The bytes are not what the decoder expects."""


@dataclass(frozen=True)
class Decoder:
    """A named function from bytes to an object. `description` says what it expects."""

    name: str
    decode: Callable[[bytes], object]
    description: str

    def object_of(self, data: bytes) -> object:
        """Returns the decoded object. Raises DecodeError, whatever the function raises."""
        try:
            return self.decode(data)
        except DecodeError:
            raise
        except Exception as error:
            raise DecodeError(f"{self.name}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Rendered:
    """The text of a key, value or header."""

    decoder: str
    text: str
    size_bytes: int
    """The number of bytes that were decoded."""
    truncated: bool = False
    error: str | None = None
    """Why the chosen decoder failed; then `decoder` is the one that made the text."""
    structure: object = None
    """The object, if the text is its JSON form."""

    def as_json(self) -> dict[str, object]:
        """Returns the object of the API."""
        fields: dict[str, object] = {
            "decoder": self.decoder,
            "text": self.text,
            "size_bytes": self.size_bytes,
            "truncated": self.truncated,
            "error": self.error,
        }
        if self.structure is not None and not self.truncated:
            fields["json"] = self.structure
        return fields


def to_text(value: object) -> str:
    """Returns a string itself, and JSON text for everything else."""
    if isinstance(value, str):
        return _unicode(value)
    return json.dumps(to_json_value(value), ensure_ascii=False, separators=(",", ":"))


def to_json_value(value: object, depth: int = 0) -> object:
    """Returns a value that JSON can express: bytes as base64, times in ISO 8601, decimals and other numbers as text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _unicode(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _MAX_DEPTH:
        raise DecodeError(f"the value is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {_key(key): to_json_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_value(item, depth + 1) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID | datetime.timedelta):
        return str(value)
    raise DecodeError(f"an object of type {type(value).__name__} has no JSON form")


def _key(key: object) -> str:
    return to_text(key)


def _unicode(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON can escape but UTF-8 cannot express."""
    return text if text.isascii() else text.encode(errors="replace").decode()
