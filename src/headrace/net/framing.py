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
- `ReceiveMemory` limits the memory of all connections. A frame that does not fit waits, and so does its connection.
"""

import struct
from collections.abc import Callable

from headrace.common.errors import HeadraceError
from headrace.net.receive_memory import CARRY_BYTES, LARGE_BYTES, SIZE_BYTES, ReceiveMemory

HUGE_PART_BYTES = 256 * 1024
"""The number of bytes that are received at once of a frame above `LARGE_BYTES`."""
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


def _explain(prefix: bytes, size: int, max_bytes: int, limit: str) -> str:
    for magic, name in _OTHER_PROTOCOLS:
        if prefix.startswith(magic):
            return f"this looks like {name}"
    if size <= 0:
        return f"a frame of {size} bytes"
    return f"a frame of {size} bytes, larger than {limit} ({max_bytes})"


class FrameReader:
    """The stream of one connection: call `get_buffer`, `updated`, `next_frame` until it returns None, then `settle`.

    A caller that stops earlier continues with `next_frame` later and calls `settle` again. A frame is a view of reused
    memory, valid until `settle` is called. If `settle` returns False, call `wait_for_memory`.
    """

    __slots__ = (
        "_carry",
        "_closed",
        "_end",
        "_keeps_frame",
        "_kept_bytes",
        "_limit",
        "_max_frame_bytes",
        "_memory",
        "_need",
        "_own",
        "_small_run",
        "_start",
        "_used",
        "_view",
        "received_bytes",
    )

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
        self._keeps_frame = False
        """True if the frame that is kept is in `_own`."""
        self._kept_bytes = 0
        """The size of the copy of the frame that is kept, if it was in the scratch buffer."""
        self._closed = False
        self._max_frame_bytes = memory.max_frame_bytes
        self._limit = "socket.request.max.bytes"
        self.received_bytes = 0

    def limit_frames(self, max_bytes: int, limit: str) -> None:
        """Rejects larger frames from now on. `limit` is the name of the config, for the error message."""
        self._max_frame_bytes = min(max_bytes, self._memory.max_frame_bytes)
        self._limit = limit

    def unlimit_frames(self) -> None:
        """Accepts all frames that the server accepts."""
        self._max_frame_bytes = self._memory.max_frame_bytes
        self._limit = "socket.request.max.bytes"

    @property
    def holds_buffer(self) -> bool:
        return self._own is not None

    @property
    def holds_large_buffer(self) -> bool:
        return self._own is not None and len(self._own) >= LARGE_BYTES

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes that were not returned as a frame yet."""
        return len(self._carry) if self._own is None else self._end - self._start

    @property
    def started_frame(self) -> memoryview:
        """The received bytes of the frame that is incomplete, with its size field."""
        return memoryview(self._carry) if self._own is None else self._view[self._start : self._end]

    def get_buffer(self) -> memoryview:
        """Returns the memory for the next bytes. Call it only between `settle` and `updated`."""
        own = self._own
        if own is None:
            carry = self._carry
            memory = self._memory
            scratch = memory.scratch
            self._start = 0
            if not carry:
                self._end = 0
                return scratch if memory.held_bytes <= memory.cautious_above else memory.size_field
            self._end = length = len(carry)
            scratch[:length] = carry
            if memory.held_bytes <= memory.cautious_above:
                return scratch[length:]
            # Memory is short: nothing beyond this frame, so that only admitted bytes are read.
            return scratch[length : SIZE_BYTES if length < SIZE_BYTES else SIZE_BYTES + _size(carry)[0]]
        if self._need:
            # Not beyond the end of this frame, so that the next one starts at the front and is not moved.
            stop = self._start + self._need
            if self._need > LARGE_BYTES:
                # In small parts: fresh memory is slow, and other connections wait meanwhile.
                stop = min(stop, self._end + HUGE_PART_BYTES)
            return own[self._end : stop]
        return own[self._end :]

    def updated(self, size: int) -> memoryview | None:
        """Processes received bytes. Returns the frame if they are exactly one frame; the caller then skips `settle`."""
        if self._own is None and not self._carry and size > 4:
            scratch = self._view
            if size - 4 == _size(scratch)[0] <= self._max_frame_bytes:
                return scratch[4:size]
        self._end += size
        self.received_bytes += size
        return None

    def next_frame(self) -> memoryview | None:
        """Returns the next complete frame without its size field, writable; None if there is none."""
        start = self._start
        if self._end - start < 4:
            return None
        view = self._view
        size: int = _size(view, start)[0]
        if not 0 < size <= self._max_frame_bytes:
            prefix = bytes(view[start : start + 4])
            raise InvalidFrameError(_explain(prefix, size, self._max_frame_bytes, self._limit))
        stop = start + 4 + size
        if stop > self._end:
            self._need = 4 + size
            return None
        if size > CARRY_BYTES:
            self._small_run = 0
        self._start = stop
        self._need = 0
        return view[start + 4 : stop]

    def keep(self, frame: memoryview) -> memoryview:
        """Returns the frame in memory that stays valid until `release_kept`, also if the reader is closed before."""
        if self._own is None:
            self._kept_bytes = len(frame)
            self._memory.carried(self._kept_bytes)
            return memoryview(bytearray(frame))
        self._keeps_frame = True
        return frame

    def release_kept(self) -> None:
        kept_bytes, self._kept_bytes = self._kept_bytes, 0
        self._memory.carried(-kept_bytes)
        self._keeps_frame = False
        if self._closed:
            self._release()

    def settle(self) -> bool:
        """Stores the remaining bytes, including complete frames, so that others may use the scratch buffer.

        Returns False if there is no memory for the rest of the incomplete frame. Does nothing while a frame is kept.
        """
        if self._keeps_frame:
            return True
        start, end = self._start, self._end
        remaining_bytes = end - start
        if self._own is not None:
            return self._settle_own(remaining_bytes)
        if remaining_bytes == 0:
            if self._carry:
                self._set_carry(b"")
            return True
        if remaining_bytes < 4 or (remaining_bytes < self._need <= CARRY_BYTES and not (self._carry and start == 0)):
            self._set_carry(bytes(self._view[start:end]))
            self._start = self._end = self._need = 0
            return True
        if remaining_bytes < self._need and not self._memory.admits(self._need):
            self._set_carry(bytes(self._view[start:end]))
            self._start = self._end = 0
            return False
        self._move(max(self._need, remaining_bytes))
        return True

    def _settle_own(self, remaining_bytes: int) -> bool:
        assert self._own is not None
        self._used = True
        capacity = len(self._own)
        need = self._need
        if remaining_bytes == 0:
            self._start = self._end = 0
            self._small_run += 1
            keep = capacity >= LARGE_BYTES and self._small_run <= SMALL_RUN
            if not keep or self._memory.held_bytes > self._memory.keep_bytes or self._memory.waiters:
                self._release()
        elif need > capacity:
            if not self._memory.admits(need):
                return False
            self._move(need)
        elif self._start + max(need, 4) > capacity:
            self._own[:remaining_bytes] = self._own[self._start : self._end]
            self._start, self._end = 0, remaining_bytes
        return True

    def wait_for_memory(self, granted: Callable[[], object]) -> None:
        """Calls `granted` once there is memory for the rest of the incomplete frame. Do not read before that."""
        self._memory.waiters[self] = self._need, granted

    def take_buffer(self, size: int) -> None:
        """Moves the incomplete frame to a buffer of this size, after it waited for memory."""
        if self._own is None:
            self._view, self._start, self._end = memoryview(self._carry), 0, len(self._carry)
        self._move(size)

    def _set_carry(self, carry: bytes) -> None:
        self._memory.carried(len(carry) - len(self._carry))
        self._carry = carry
        if carry:
            self._memory.holders.add(self)
        else:
            self._memory.holders.discard(self)

    def _move(self, size: int) -> None:
        """Moves the bytes to a new buffer of the connection."""
        remaining_bytes = self._end - self._start
        buffer = self._memory.take(size)
        buffer[:remaining_bytes] = self._view[self._start : self._end]
        self._release()
        self._set_carry(b"")
        self._memory.holders.add(self)
        self._own = self._view = buffer
        self._start, self._end = 0, remaining_bytes
        self._small_run = 0

    def release_if_unused(self, *, at_once: bool = False) -> None:
        """Returns the buffer if it is empty and, unless `at_once`, was not used since the last call."""
        if (at_once or not self._used) and self._start == self._end and not self._keeps_frame:
            self._release()
        self._used = False

    def _release(self) -> None:
        if self._own is not None:
            own, self._own = self._own, None
            self._view = self._memory.scratch
            self._memory.holders.discard(self)
            self._memory.give_back(own)

    def close(self) -> None:
        """Drops all bytes and returns the buffer, or lets `release_kept` return it."""
        self._closed = True
        self._memory.waiters.pop(self, None)
        self._start = self._end = self._need = 0
        if self._carry:
            self._set_carry(b"")
        if not self._keeps_frame:
            self._release()
