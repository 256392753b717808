"""Cuts replies out of a stream of bytes, each into memory of its own. Does no I/O; see `framing` for the server's side.

    size: int32 (of what follows) | correlation id: int32 | tags, in flexible versions | the message | size | ...

A reply is handed over: record bytes in it are views that stay valid as long as somebody holds them. Small replies are
copied out of a scratch buffer. A large one gets a buffer of its size as soon as that is known, and what has not come
yet is received straight into it.
"""

import struct

from headrace.common.types import Buffer
from headrace.net.framing import InvalidFrameError

SCRATCH_BYTES = 64 * 1024
SMALL_BYTES = 16 * 1024
"""A reply up to this size waits in the scratch buffer until it is whole."""

_size = struct.Struct(">i").unpack_from

_STRANGERS = (
    (b"\x15\x03", "an alert of TLS: the port wants TLS (security.protocol=SSL)"),
    (b"\x16\x03", "a TLS handshake"),
    (b"HTTP", "an HTTP server"),
    (b"SSH-", "an SSH server"),
    (b"220 ", "a mail or FTP server"),
    (b"220-", "a mail or FTP server"),
    (b"-ERR", "a Redis server"),
    (b"\x00\x00\x00\x00", "no Kafka broker"),
)


class ReplyReader:
    """One connection's stream: `get_buffer` says where bytes may be put, `updated` returns what replies are whole."""

    __slots__ = ("_end", "_filled", "_large", "_max_bytes", "_scratch")

    def __init__(self, max_bytes: int):
        self._max_bytes = max_bytes
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._end = 0
        """What the scratch buffer holds: nothing, or the start of a reply."""
        self._large: memoryview | None = None
        self._filled = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a reply that is not whole yet."""
        return self._end if self._large is None else self._filled + 4

    def get_buffer(self) -> memoryview:
        """Never empty, and never beyond the end of a large reply."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._scratch[self._end :]

    def updated(self, size: int) -> "list[Buffer]":
        """The replies that so many more bytes have completed, without their size fields."""
        if self._large is not None:
            self._filled += size
            if self._filled < len(self._large):
                return []
            whole, self._large, self._filled = self._large, None, 0
            return [whole]
        return self._cut(self._end + size)

    def _cut(self, end: int) -> "list[Buffer]":
        replies: list[Buffer] = []
        scratch = self._scratch
        start = 0
        while end - start >= 4:
            size: int = _size(scratch, start)[0]
            if not 4 <= size <= self._max_bytes:
                raise InvalidFrameError(_explain(bytes(scratch[start : start + 4]), size, self._max_bytes))
            stop = start + 4 + size
            if stop <= end:
                replies.append(bytes(scratch[start + 4 : stop]))
                start = stop
                continue
            if size > SMALL_BYTES:
                self._filled = end - start - 4
                self._large = memoryview(bytearray(size))
                self._large[: self._filled] = scratch[start + 4 : end]
                start = end
            break
        self._end = end - start
        if start and self._end:
            scratch[: self._end] = bytes(scratch[start:end])
        return replies


def _explain(prefix: bytes, size: int, max_bytes: int) -> str:
    for start, name in _STRANGERS:
        if prefix.startswith(start):
            return f"what answers looks like {name}"
    if size < 4:
        return f"a reply of {size} bytes"
    return f"a reply of {size} bytes, more than the {max_bytes} that are allowed (receive.message.max.bytes)"


def body_position(reply: Buffer, has_tags: bool) -> int:
    """Where the message begins, behind the header. Tags there are passed over; none has a meaning yet."""
    if not has_tags:
        return 4
    count, position = _unsigned(reply, 4)
    for _ in range(count):
        _, position = _unsigned(reply, position)
        size, position = _unsigned(reply, position)
        position += size
    if position > len(reply):
        raise InvalidFrameError("a reply whose header is longer than itself")
    return position


def _unsigned(data: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise InvalidFrameError("a reply whose header breaks off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
