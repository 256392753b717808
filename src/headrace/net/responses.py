"""Splits a stream of bytes into responses, each in its own memory. Does no I/O. The server's side is `framing`.

    size: int32 | correlation id: int32 | tags, in flexible versions | the message | size | ...

`size` does not count itself.

- The caller owns a response. Record bytes in it are views that stay valid as long as they are referenced.
- Small responses are copied out of a scratch buffer. A large response gets its own buffer as soon as its size is known,
  and the rest of it is received directly into that buffer.
- Fresh memory is expensive: it is zeroed, and every page faults. So a large buffer is reused when it has no views. A
  view holds a reference to its buffer, so the reference count shows this. Other threads can only drop references.
- Very large buffers are mapped, in huge pages where available, which cost a tenth of the page faults.
"""

import mmap
import struct
from contextlib import suppress
from sys import getrefcount

from headrace.common.types import Buffer
from headrace.net.framing import InvalidFrameError

SCRATCH_BYTES = 64 * 1024
ROUND_BYTES = 64 * 1024
SMALL_BYTES = 16 * 1024
"""A response up to this size stays in the scratch buffer until it is complete."""
MAPPED_BYTES = 2 * 1024 * 1024

_size = struct.Struct(">i").unpack_from

_OTHER_PROTOCOLS = (
    (b"\x15\x03", "a TLS alert: the port expects TLS (security.protocol=SSL)"),
    (b"\x16\x03", "a TLS handshake"),
    (b"HTTP", "an HTTP server"),
    (b"SSH-", "an SSH server"),
    (b"220 ", "a mail or FTP server"),
    (b"220-", "a mail or FTP server"),
    (b"-ERR", "a Redis server"),
    (b"\x00\x00\x00\x00", "something other than a Kafka broker"),
)


class ResponseMemory:
    """The large buffers of a client, used and free. Owner: the loop."""

    __slots__ = ("_buffers", "_taken", "max_bytes", "max_count")

    def __init__(self, max_count: int = 8, max_bytes: int = 64 * 1024 * 1024):
        self.max_count = max_count
        self.max_bytes = max_bytes
        self._buffers: list[bytearray | mmap.mmap] = []
        self._taken = 0

    def take(self, size: int) -> memoryview:
        """Returns a buffer of this size with undefined content."""
        self._taken += 1
        for index in range(len(self._buffers)):
            length = len(self._buffers[index])
            if size <= length <= 2 * size + ROUND_BYTES and getrefcount(self._buffers[index]) == _FREE:
                # Moved to the end; the least recently used buffer is at the front.
                self._buffers.append(self._buffers.pop(index))
                return memoryview(self._buffers[-1])[:size]
        buffer = _new_buffer(-(-size // ROUND_BYTES) * ROUND_BYTES)
        held_bytes = len(buffer) + sum(map(len, self._buffers))
        while self._buffers and (held_bytes > self.max_bytes or len(self._buffers) >= self.max_count):
            held_bytes -= len(self._buffers.pop(0))
        if held_bytes <= self.max_bytes:
            self._buffers.append(buffer)
        return memoryview(buffer)[:size]

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self._buffers))

    def trim(self) -> None:
        """Frees all buffers if none was taken since the last call."""
        if not self._taken:
            self._buffers.clear()
        self._taken = 0


def _new_buffer(size: int) -> bytearray | mmap.mmap:
    if size < MAPPED_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return bytearray(size)
    buffer = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


_FREE = 2
"""The reference count of a buffer without views: one for the list, one for the argument of `getrefcount`."""


class ResponseReader:
    """The stream of one connection: `get_buffer` provides memory, `updated` returns complete responses."""

    __slots__ = ("_end", "_filled", "_large", "_max_bytes", "_memory", "_scratch")

    def __init__(self, max_bytes: int, memory: ResponseMemory | None = None):
        self._max_bytes = max_bytes
        self._memory = memory or ResponseMemory()
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._end = 0
        """The length of the incomplete response at the start of the scratch buffer."""
        self._large: memoryview | None = None
        self._filled = 0

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes received of an incomplete response."""
        return self._end if self._large is None else self._filled + 4

    @property
    def missing_bytes(self) -> int:
        """The number of bytes missing from a large response."""
        return 0 if self._large is None else len(self._large) - self._filled

    def get_buffer(self) -> memoryview:
        """Returns memory for the next bytes: never empty, and not beyond the end of a large response."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._scratch[self._end :]

    def updated(self, size: int) -> "list[Buffer]":
        """Processes received bytes. Returns the responses that they complete, without their size fields."""
        if self._large is not None:
            self._filled += size
            if self._filled < len(self._large):
                return []
            response, self._large, self._filled = self._large, None, 0
            return [response]
        return self._cut(self._end + size)

    def _cut(self, end: int) -> "list[Buffer]":
        responses: list[Buffer] = []
        scratch = self._scratch
        start = 0
        while end - start >= 4:
            size: int = _size(scratch, start)[0]
            if not 4 <= size <= self._max_bytes:
                raise InvalidFrameError(_explain(bytes(scratch[start : start + 4]), size, self._max_bytes))
            stop = start + 4 + size
            if stop <= end:
                responses.append(bytes(scratch[start + 4 : stop]))
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
        return responses


def _explain(prefix: bytes, size: int, max_bytes: int) -> str:
    for magic, name in _OTHER_PROTOCOLS:
        if prefix.startswith(magic):
            return f"the peer looks like {name}"
    if size < 4:
        return f"a response of {size} bytes"
    return f"a response of {size} bytes, larger than receive.message.max.bytes ({max_bytes})"


def body_position(response: Buffer, has_tags: bool) -> int:
    """Returns the position of the message after the header. Skips header tags; none is defined yet."""
    if not has_tags:
        return 4
    count, position = _unsigned(response, 4)
    for _ in range(count):
        _, position = _unsigned(response, position)
        size, position = _unsigned(response, position)
        position += size
    if position > len(response):
        raise InvalidFrameError("a response with a header longer than itself")
    return position


def _unsigned(data: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise InvalidFrameError("a response with a truncated header")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
