"""Splits a stream of bytes into frames. Does no I/O: it provides buffers, and the caller reports received bytes.

    size: int32 | `size` bytes | size | ...

Memory:

- A read nearly always returns whole frames, which are handled at once. So all connections of a loop read into one
  shared scratch buffer, and a connection holds no memory between frames.
- The start of an incomplete small frame is copied to the front of the scratch buffer before the next read. Each frame
  is copied at most once, so a sender that trickles bytes causes no quadratic copying.
- The start of any other incomplete frame moves to a buffer of the connection, which receives the rest directly. The
  buffer is mapped but not touched: a claimed size costs address space, and memory only as bytes arrive.
- The connection keeps its buffer and receives further large frames without copying. It returns the buffer after several
  reads without a large frame, or when the buffer is unused for a while.
- Fresh memory is expensive: a page fault per 4 KB takes longer than receiving them. `ReceiveMemory` recycles buffers of
  the usual large size.
"""

import mmap
import struct
from contextlib import suppress

from headrace.common.errors import HeadraceError

SCRATCH_BYTES = 256 * 1024
CARRY_BYTES = 64 * 1024
"""The largest frame, with its size field, that may be copied within the scratch buffer."""
LARGE_BYTES = 1_310_720
"""The usual size of a connection's buffer: fits a request with a batch of the default `max.message.bytes`."""
_ROUND_BYTES = 1024 * 1024
SMALL_RUN = 8
"""The number of reads without a large frame after which a connection returns its buffer."""

_size = struct.Struct(">i").unpack_from

_OTHER_PROTOCOLS = (
    (b"\x16\x03", "a TLS handshake; this listener does not speak TLS"),
    (b"GET ", "an HTTP request"),
    (b"POST", "an HTTP request"),
    (b"PUT ", "an HTTP request"),
    (b"HEAD", "an HTTP request"),
    (b"OPTI", "an HTTP request"),
    (b"PRI ", "an HTTP/2 connection"),
    (b"SSH-", "an SSH connection"),
)


class InvalidFrameError(HeadraceError):
    """A frame has an invalid size, so the rest of the stream cannot be read."""


def _explain(prefix: bytes, size: int, max_bytes: int) -> str:
    for magic, name in _OTHER_PROTOCOLS:
        if prefix.startswith(magic):
            return f"this looks like {name}"
    if size <= 0:
        return f"a frame of {size} bytes"
    return f"a frame of {size} bytes, larger than socket.request.max.bytes ({max_bytes})"


class ReceiveMemory:
    """The scratch buffer of a loop, and its pool of large buffers."""

    __slots__ = ("_free", "_taken", "held_bytes", "holders", "keep_bytes", "max_frame_bytes", "max_free", "scratch")

    def __init__(self, max_frame_bytes: int, keep_bytes: int = 64 * 1024 * 1024, max_free: int = 8):
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.max_frame_bytes = max_frame_bytes
        self.keep_bytes = keep_bytes
        """Connections keep their buffers between frames while all buffers together are not larger than this."""
        self.max_free = max_free
        self.held_bytes = 0
        self.holders: set[FrameReader] = set()
        self._free: list[memoryview] = []
        self._taken = False

    def take(self, size: int) -> memoryview:
        """Returns a buffer of at least this size with undefined content."""
        if size > CARRY_BYTES:
            # Rounded up, so that a slightly larger frame also fits.
            size = LARGE_BYTES if size <= LARGE_BYTES else -(-size // _ROUND_BYTES) * _ROUND_BYTES
        buffer = self._free.pop() if size == LARGE_BYTES and self._free else _map(size)
        self.held_bytes += len(buffer)
        self._taken = True
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        self.held_bytes -= len(buffer)
        if len(buffer) == LARGE_BYTES and len(self._free) < self.max_free:
            self._free.append(buffer)

    def trim(self) -> None:
        """Frees the buffers that were not used since the last call."""
        for holder in list(self.holders):
            holder.release_if_unused()
        if not self._taken:
            self._free.clear()
        self._taken = False


def _map(size: int) -> memoryview:
    buffer = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # A huge page would cost 2 MB for the first byte. Kernels without huge pages reject the advice.
        with suppress(OSError):
            buffer.madvise(mmap.MADV_NOHUGEPAGE)
    return memoryview(buffer)


class FrameReader:
    """The stream of one connection: call `get_buffer`, `updated`, `next_frame` until it returns None, then `settle`.

    A caller that stops earlier continues with `next_frame` later and calls `settle` again. A frame is a view of reused
    memory, valid until `settle` is called.
    """

    __slots__ = ("_carry", "_end", "_memory", "_need", "_own", "_small_run", "_start", "_used", "_view")

    def __init__(self, memory: ReceiveMemory):
        self._memory = memory
        self._view = memory.scratch
        """The memory of the bytes from `_start` to `_end`: the scratch buffer or `_own`."""
        self._own: memoryview | None = None
        self._carry = b""
        self._start = 0
        self._end = 0
        self._need = 0
        """The size of the incomplete frame at `_start` with its size field; 0 if unknown."""
        self._small_run = 0
        self._used = False

    @property
    def holds_buffer(self) -> bool:
        return self._own is not None

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes that were not returned as a frame yet."""
        return len(self._carry) if self._own is None else self._end - self._start

    def get_buffer(self) -> memoryview:
        """Returns the memory for the next bytes. Call it only between `settle` and `updated`."""
        own = self._own
        if own is None:
            carry = self._carry
            scratch = self._memory.scratch
            self._start = 0
            if not carry:
                self._end = 0
                return scratch
            self._end = length = len(carry)
            scratch[:length] = carry
            return scratch[length:]
        if self._need:
            # Not beyond the end of this frame, so that the next one starts at the front and is not moved.
            return own[self._end : self._start + self._need]
        return own[self._end :]

    def updated(self, size: int) -> memoryview | None:
        """Processes received bytes. Returns the frame if they are exactly one frame; the caller then skips `settle`."""
        if self._own is None and not self._carry and size > 4:
            scratch = self._view
            if size - 4 == _size(scratch)[0] <= self._memory.max_frame_bytes:
                return scratch[4:size]
        self._end += size
        return None

    def next_frame(self) -> memoryview | None:
        """Returns the next complete frame without its size field, writable; None if there is none."""
        start = self._start
        if self._end - start < 4:
            return None
        view = self._view
        size: int = _size(view, start)[0]
        if not 0 < size <= self._memory.max_frame_bytes:
            prefix = bytes(view[start : start + 4])
            raise InvalidFrameError(_explain(prefix, size, self._memory.max_frame_bytes))
        stop = start + 4 + size
        if stop > self._end:
            self._need = 4 + size
            return None
        if size > CARRY_BYTES:
            self._small_run = 0
        self._start = stop
        self._need = 0
        return view[start + 4 : stop]

    def settle(self) -> None:
        """Stores the remaining bytes, including complete frames, so that others may use the scratch buffer."""
        start, end = self._start, self._end
        remaining_bytes = end - start
        if self._own is not None:
            self._settle_own(remaining_bytes)
        elif remaining_bytes == 0:
            self._carry = b""
        elif remaining_bytes < 4 or (remaining_bytes < self._need <= CARRY_BYTES and not (self._carry and start == 0)):
            self._carry = bytes(self._view[start:end])
            self._start = self._end = self._need = 0
        else:
            self._move(max(self._need, remaining_bytes))

    def _settle_own(self, remaining_bytes: int) -> None:
        assert self._own is not None
        self._used = True
        capacity = len(self._own)
        need = self._need
        if remaining_bytes == 0:
            self._start = self._end = 0
            self._small_run += 1
            keep = capacity >= LARGE_BYTES and self._small_run <= SMALL_RUN
            if not keep or self._memory.held_bytes > self._memory.keep_bytes:
                self._release()
        elif need > capacity:
            self._move(need)
        elif self._start + max(need, 4) > capacity:
            self._own[:remaining_bytes] = self._own[self._start : self._end]
            self._start, self._end = 0, remaining_bytes

    def _move(self, size: int) -> None:
        """Moves the bytes to a new buffer of the connection."""
        remaining_bytes = self._end - self._start
        buffer = self._memory.take(size)
        buffer[:remaining_bytes] = self._view[self._start : self._end]
        self._release()
        self._memory.holders.add(self)
        self._own = self._view = buffer
        self._carry = b""
        self._start, self._end = 0, remaining_bytes
        self._small_run = 0

    def release_if_unused(self) -> None:
        """Returns the buffer if it is empty and was not used since the last call."""
        if not self._used and self._start == self._end:
            self._release()
        self._used = False

    def _release(self) -> None:
        if self._own is not None:
            self._memory.holders.discard(self)
            self._memory.give_back(self._own)
            self._own = None
            self._view = self._memory.scratch

    def close(self) -> None:
        """Drops all bytes and returns the buffer."""
        self._start = self._end = self._need = 0
        self._carry = b""
        self._release()
