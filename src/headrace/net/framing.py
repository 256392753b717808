"""Cuts frames out of a stream of bytes. Does no I/O: it says where bytes may be put, and is told how many came.

    size: int32 (of what follows) | that many bytes | size | ...

Memory. Nearly always the bytes of a read are whole frames, handled before anything else happens, so all connections of
a loop read into one shared scratch buffer, and a connection between frames holds no memory at all. What is left at the
end of a read goes one of two ways:

- The start of a small frame is carried to the front of the scratch buffer before the next read. Each frame is carried
  once at most, so a sender that dribbles bytes causes no quadratic copying.
- Else the rest is moved to a buffer of the connection's own, and what follows is received straight into it. That buffer
  is mapped, not filled: a size that is claimed costs address space, and memory only as bytes arrive. It is kept for the
  large frames that follow, which are then received without being copied at all, until small frames have taken over or
  it has not been used for a while.

Fresh memory is dear (a page fault for every 4 KB takes longer than receiving them), so buffers of the usual large size
go round in `ReceiveMemory`.
"""

import mmap
import struct
from contextlib import suppress

from headrace.common.errors import HeadraceError

SCRATCH_BYTES = 256 * 1024
CARRY_BYTES = 64 * 1024
"""A frame up to this size, with its size field, may be carried in the scratch buffer."""
LARGE_BYTES = 1_310_720
"""The usual size of a buffer of a connection's own: fits a request with a batch of `max.message.bytes`' default."""
_ROUND_BYTES = 1024 * 1024
SMALL_RUN = 8
"""So many reads in a row without a large frame, and a connection gives its buffer back."""

_size = struct.Struct(">i").unpack_from

_STRANGERS = (
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
    """A size that no frame may have. Nothing after it can be understood."""


def _explain(prefix: bytes, size: int, max_bytes: int) -> str:
    for start, name in _STRANGERS:
        if prefix.startswith(start):
            return f"this looks like {name}"
    if size <= 0:
        return f"a frame of {size} bytes"
    return f"a frame of {size} bytes, more than the {max_bytes} that are allowed (socket.request.max.bytes)"


class ReceiveMemory:
    """The scratch buffer of a loop, and large buffers on their way from one connection to the next."""

    __slots__ = ("_free", "_taken", "held_bytes", "holders", "keep_bytes", "max_frame_bytes", "max_free", "scratch")

    def __init__(self, max_frame_bytes: int, keep_bytes: int = 64 * 1024 * 1024, max_free: int = 8):
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.max_frame_bytes = max_frame_bytes
        self.keep_bytes = keep_bytes
        """Connections keep their buffers between frames as long as all of them together hold no more than this."""
        self.max_free = max_free
        self.held_bytes = 0
        self.holders: set[FrameReader] = set()
        self._free: list[memoryview] = []
        self._taken = False

    def take(self, size: int) -> memoryview:
        """A buffer of at least that size, whose content is undefined."""
        if size > CARRY_BYTES:
            # Rounded up, so that a frame that is a little larger than the one before fits too.
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
        """Lets go of what nobody has used since the last time."""
        for holder in list(self.holders):
            holder.release_if_unused()
        if not self._taken:
            self._free.clear()
        self._taken = False


def _map(size: int) -> memoryview:
    buffer = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # A huge page would cost 2 MB for the first byte. Kernels without huge pages refuse the advice.
        with suppress(OSError):
            buffer.madvise(mmap.MADV_NOHUGEPAGE)
    return memoryview(buffer)


class FrameReader:
    """One connection's stream: `get_buffer`, `updated`, then `next_frame` until there is none, then `settle`.

    Who stops before there is none goes on with `next_frame` later, and calls `settle` again. A frame is a view of
    memory that is used again: it is valid until `settle` is called.
    """

    __slots__ = ("_carry", "_end", "_memory", "_need", "_own", "_small_run", "_start", "_used", "_view")

    def __init__(self, memory: ReceiveMemory):
        self._memory = memory
        self._view = memory.scratch
        """Where the bytes from `_start` to `_end` are: the scratch buffer or `_own`."""
        self._own: memoryview | None = None
        self._carry = b""
        self._start = 0
        self._end = 0
        self._need = 0
        """The size of the frame at `_start` with its size field, once it is known that it is not whole; else 0."""
        self._small_run = 0
        self._used = False

    @property
    def holds_buffer(self) -> bool:
        return self._own is not None

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were received and not yet handed out."""
        return len(self._carry) if self._own is None else self._end - self._start

    def get_buffer(self) -> memoryview:
        """Where the next bytes are to be put. Only between `settle` and `updated`."""
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
            # Not beyond the end of this frame: so the next one starts at the front, and is not moved.
            return own[self._end : self._start + self._need]
        return own[self._end :]

    def updated(self, size: int) -> memoryview | None:
        """Bytes have come. If they are just one frame, as they mostly are, returns it, and `settle` is not needed."""
        if self._own is None and not self._carry and size > 4:
            scratch = self._view
            if size - 4 == _size(scratch)[0] <= self._memory.max_frame_bytes:
                return scratch[4:size]
        self._end += size
        return None

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size field, writable."""
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
        """Puts away what is left, whole frames included. The scratch buffer is free for others afterwards."""
        start, end = self._start, self._end
        left = end - start
        if self._own is not None:
            self._settle_own(left)
        elif left == 0:
            self._carry = b""
        elif left < 4 or (left < self._need <= CARRY_BYTES and not (self._carry and start == 0)):
            self._carry = bytes(self._view[start:end])
            self._start = self._end = self._need = 0
        else:
            self._move(max(self._need, left))

    def _settle_own(self, left: int) -> None:
        assert self._own is not None
        self._used = True
        capacity = len(self._own)
        need = self._need
        if left == 0:
            self._start = self._end = 0
            self._small_run += 1
            kept = capacity >= LARGE_BYTES and self._small_run <= SMALL_RUN
            if not kept or self._memory.held_bytes > self._memory.keep_bytes:
                self._release()
        elif need > capacity:
            self._move(need)
        elif self._start + max(need, 4) > capacity:
            self._own[:left] = self._own[self._start : self._end]
            self._start, self._end = 0, left

    def _move(self, size: int) -> None:
        """To another buffer of the connection's own."""
        left = self._end - self._start
        buffer = self._memory.take(size)
        buffer[:left] = self._view[self._start : self._end]
        self._release()
        self._memory.holders.add(self)
        self._own = self._view = buffer
        self._carry = b""
        self._start, self._end = 0, left
        self._small_run = 0

    def release_if_unused(self) -> None:
        """Gives the buffer back if it is empty and nothing has come since the last time."""
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
        """Forgets everything."""
        self._start = self._end = self._need = 0
        self._carry = b""
        self._release()
