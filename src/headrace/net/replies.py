"""Cuts replies out of a stream of bytes, each into memory of its own. Does no I/O; see `framing` for the server's side.

    size: int32 (of what follows) | correlation id: int32 | tags, in flexible versions | the message | size | ...

A reply is handed over: record bytes in it are views that stay valid as long as somebody holds them. Small replies are
copied out of a scratch buffer. A large one gets a buffer of its size as soon as that is known, and what has not come
yet is received straight into it.

Fresh memory is dear (it is cleared, and each page of it faults), so large buffers are used again when nobody has a view
of them any more. A view refers to its buffer, so the count of references tells; other threads may only drop some.
"""

import struct
from sys import getrefcount

from headrace.common.types import Buffer
from headrace.net.framing import InvalidFrameError

SCRATCH_BYTES = 64 * 1024
ROUND_BYTES = 64 * 1024
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


class ReplyMemory:
    """Large buffers of a client, in use and free. Belongs to the loop."""

    __slots__ = ("_buffers", "_taken", "max_bytes", "max_count")

    def __init__(self, max_count: int = 8, max_bytes: int = 64 * 1024 * 1024):
        self.max_count = max_count
        self.max_bytes = max_bytes
        self._buffers: list[bytearray] = []
        self._taken = 0

    def take(self, size: int) -> memoryview:
        """Room for so many bytes, whose content is undefined."""
        self._taken += 1
        for index in range(len(self._buffers)):
            length = len(self._buffers[index])
            if size <= length <= 2 * size + ROUND_BYTES and getrefcount(self._buffers[index]) == _FREE:
                # To the end: those at the front have not been used for longest.
                self._buffers.append(self._buffers.pop(index))
                return memoryview(self._buffers[-1])[:size]
        buffer = bytearray(-(-size // ROUND_BYTES) * ROUND_BYTES)
        held = len(buffer) + sum(map(len, self._buffers))
        while self._buffers and (held > self.max_bytes or len(self._buffers) >= self.max_count):
            held -= len(self._buffers.pop(0))
        if held <= self.max_bytes:
            self._buffers.append(buffer)
        return memoryview(buffer)[:size]

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self._buffers))

    def trim(self) -> None:
        """Lets go of everything if nothing was taken since the last time."""
        if not self._taken:
            self._buffers.clear()
        self._taken = 0


_FREE = 2
"""References to a buffer that nobody has a view of: the list's, and that of the call that counts."""


class ReplyReader:
    """One connection's stream: `get_buffer` says where bytes may be put, `updated` returns what replies are whole."""

    __slots__ = ("_end", "_filled", "_large", "_max_bytes", "_memory", "_scratch")

    def __init__(self, max_bytes: int, memory: ReplyMemory | None = None):
        self._max_bytes = max_bytes
        self._memory = memory or ReplyMemory()
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._end = 0
        """What the scratch buffer holds: nothing, or the start of a reply."""
        self._large: memoryview | None = None
        self._filled = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a reply that is not whole yet."""
        return self._end if self._large is None else self._filled + 4

    @property
    def missing_bytes(self) -> int:
        """What a large reply still lacks."""
        return 0 if self._large is None else len(self._large) - self._filled

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
                self._large = self._memory.take(size)
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
