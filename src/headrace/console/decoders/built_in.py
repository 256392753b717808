"""The decoders that need no schema: text, JSON, numbers, hex, base64, MessagePack, and `auto`, which chooses.

Numbers are big-endian, as Kafka's serializers write them. `auto` takes JSON objects and arrays as JSON, printable UTF-8
as text, and shows everything else as hex.
"""

import base64
import functools
import json
import struct
import uuid
from collections.abc import Callable
from typing import Any

from headrace.common.extras import requires_extra
from headrace.console.decoders.decoder import DecodeError, Decoder, to_json_value

__all__ = ["AUTO", "BUILT_IN", "HEX", "TEXT", "auto_format", "is_printable"]

_SHOWN_CONTROLS = frozenset("\t\n\r")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"text: byte {error.start} is not UTF-8") from None


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (UnicodeDecodeError, ValueError) as error:
        raise DecodeError(f"json: {error}") from None
    except RecursionError:
        raise DecodeError("json: nested too deep") from None


def _hex(data: bytes) -> str:
    return data.hex(" ")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _number(name: str, layout: str) -> Callable[[bytes], object]:
    codec = struct.Struct(layout)

    def decode(data: bytes) -> object:
        if len(data) != codec.size:
            raise DecodeError(f"{name}: expected {codec.size} bytes, not {len(data)}")
        return codec.unpack(data)[0]

    return decode


def _uuid(data: bytes) -> str:
    if len(data) != 16:
        raise DecodeError(f"uuid: expected 16 bytes, not {len(data)}")
    return str(uuid.UUID(bytes=data))


@functools.cache
def _msgpack() -> Any:
    with requires_extra("decoders"):
        import msgpack
    return msgpack


def _messagepack(data: bytes) -> object:
    msgpack = _msgpack()
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False, timestamp=3)
    except (ValueError, msgpack.UnpackException) as error:
        raise DecodeError(f"msgpack: {error or type(error).__name__}") from None


def is_printable(text: str) -> bool:
    """Returns True for text without control characters other than tab and line breaks."""
    return text.isprintable() or all(char.isprintable() or char in _SHOWN_CONTROLS for char in text)


def _auto(data: bytes) -> object:
    return auto_format(data)[1]


def auto_format(data: bytes) -> tuple[str, str, object]:
    """Returns the decoder that fits the bytes, their text, and the object if they are JSON."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "hex", _hex(data), None
    if data[:1] in (b"{", b"["):
        try:
            return "json", text, to_json_value(json.loads(text))
        except (ValueError, RecursionError, DecodeError):
            pass
    return ("text", text, None) if is_printable(text) else ("hex", _hex(data), None)


AUTO = Decoder("auto", _auto, "JSON, text or hex, whichever the bytes are")
TEXT = Decoder("text", _text, "UTF-8 text")
HEX = Decoder("hex", _hex, "the bytes in hexadecimal")

BUILT_IN: dict[str, Decoder] = {
    decoder.name: decoder
    for decoder in (
        AUTO,
        TEXT,
        Decoder("json", _json, "JSON"),
        *(
            Decoder(name, _number(name, layout), description)
            for name, layout, description in (
                ("int8", ">b", "a signed integer of 1 byte"),
                ("int16", ">h", "a signed integer of 2 bytes, big-endian"),
                ("int32", ">i", "a signed integer of 4 bytes, big-endian"),
                ("int64", ">q", "a signed integer of 8 bytes, big-endian"),
                ("uint32", ">I", "an unsigned integer of 4 bytes, big-endian"),
                ("uint64", ">Q", "an unsigned integer of 8 bytes, big-endian"),
                ("float", ">f", "a floating-point number of 4 bytes, big-endian"),
                ("double", ">d", "a floating-point number of 8 bytes, big-endian"),
            )
        ),
        Decoder("uuid", _uuid, "a UUID of 16 bytes"),
        HEX,
        Decoder("base64", _base64, "the bytes in base64"),
        Decoder("msgpack", _messagepack, "MessagePack (extra `decoders`)"),
    )
}
