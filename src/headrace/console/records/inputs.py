"""Keys, values and headers that people type in, as bytes. Pure."""

import base64
import binascii
import json
import struct
import uuid
from collections.abc import Callable

from headrace.common.errors import HeadraceError

__all__ = ["ENCODINGS", "InputError", "encode_input"]


class InputError(HeadraceError, ValueError):
    """A text is not what its encoding expects."""


def _json(text: str) -> bytes:
    json.loads(text)  # only checked: the bytes are those that were typed in
    return text.encode()


def _hex(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _integer(layout: str) -> Callable[[str], bytes]:
    return lambda text: struct.pack(layout, int(text))


def _float(layout: str) -> Callable[[str], bytes]:
    return lambda text: struct.pack(layout, float(text))


ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "text": str.encode,
    "json": _json,
    "hex": _hex,
    "base64": _base64,
    "int8": _integer(">b"),
    "int16": _integer(">h"),
    "int32": _integer(">i"),
    "int64": _integer(">q"),
    "uint32": _integer(">I"),
    "uint64": _integer(">Q"),
    "float": _float(">f"),
    "double": _float(">d"),
    "uuid": lambda text: uuid.UUID(text).bytes,
}
"""From the name of an encoding to its function. Numbers are big-endian, as Kafka's serializers write them."""


def encode_input(encoding: str, text: str, name: str) -> bytes:
    """Returns the bytes of an input. Raises InputError, which names it."""
    encode = ENCODINGS.get(encoding)
    if encode is None:
        raise InputError(f"{name}: unknown encoding {encoding!r}; expected {', '.join(ENCODINGS)}")
    try:
        return encode(text)
    except (ValueError, OverflowError, struct.error, binascii.Error, RecursionError) as error:
        raise InputError(f"{name} is not {encoding}: {error}") from None
