"""The stream from a scan process to the console.

    0       type: J (a JSON object) or D (bytes of a file)
    1..4    length, int32 big-endian
    5..     content

JSON objects have one member: `records`, `progress`, `done` or `error`.
"""

import asyncio
import json
import struct
from typing import Any, BinaryIO

from headrace.common.errors import HeadraceError

__all__ = ["DATA", "JSON", "FrameWriter", "read_frame"]

JSON = b"J"
DATA = b"D"
_HEAD = struct.Struct(">cI")
MAX_FRAME_BYTES = 512 * 1024 * 1024


class FrameWriter:
    """Writes frames. A full pipe blocks, which makes the scan wait for its reader."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream

    def event(self, name: str, content: Any) -> None:
        self._write(JSON, json.dumps({name: content}).encode())

    def data(self, content: bytes) -> None:
        self._write(DATA, content)

    def _write(self, kind: bytes, content: bytes) -> None:
        self._stream.write(_HEAD.pack(kind, len(content)))
        self._stream.write(content)
        self._stream.flush()


async def read_frame(stream: asyncio.StreamReader) -> tuple[bytes, bytes] | None:
    """Returns type and content of the next frame; None at the end of the stream."""
    try:
        kind, length = _HEAD.unpack(await stream.readexactly(_HEAD.size))
        if kind not in (JSON, DATA) or length > MAX_FRAME_BYTES:
            raise HeadraceError(f"The scan process sent a wrong frame: type {kind!r}, {length} bytes")
        return kind, await stream.readexactly(length)
    except asyncio.IncompleteReadError:
        return None
