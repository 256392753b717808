"""The memory of requests that are being received: the scratch buffer, the buffers of connections, and their limit.

`queued.max.request.bytes` limits the buffers of all connections together (Kafka: `SimpleMemoryPool`):

- A frame reserves its whole size before its body is read, so every frame that was admitted can be completed.
- A frame that does not fit waits, and its connection is not read, until others give memory back.
- A frame up to `CARRY_BYTES` never waits. Frames up to `LARGE_BYTES` have a quarter of the limit to themselves, so
  a few huge requests cannot delay ordinary ones.
- One frame larger than `LARGE_BYTES` is always admitted, so the limit can be exceeded by one request, as in Kafka.
- Above half of the limit a connection reads the size of a frame first, and the frame only after it was admitted.

A peer that stops in the middle of a frame keeps its memory, until `headrace.net.stalled_requests` finds it.
"""

import logging
import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

_logger = logging.getLogger(__name__)

SCRATCH_BYTES = 256 * 1024
CARRY_BYTES = 64 * 1024
"""The largest frame, with its size field, that may be copied within the scratch buffer."""
LARGE_BYTES = 1_310_720
"""The usual size of a connection's buffer: fits a request with a batch of the default `max.message.bytes`."""
SIZE_BYTES = 4
UNLIMITED = -1
_ROUND_BYTES = 1024 * 1024
_KEEP_BYTES = 64 * 1024 * 1024


class BufferHolder(Protocol):
    """The interface of a frame reader that holds memory."""

    received_bytes: int
    """The number of bytes received so far, apart from frames that arrived whole."""

    @property
    def buffered_bytes(self) -> int: ...

    def release_if_unused(self, *, at_once: bool = False) -> None: ...

    def take_buffer(self, size: int) -> None: ...


class ReceiveMemory:
    """The scratch buffer of a loop, and its pool of large buffers."""

    __slots__ = (
        "_carried_bytes",
        "_free",
        "_huge_bytes",
        "_taken",
        "cautious_above",
        "held_bytes",
        "holders",
        "keep_bytes",
        "max_bytes",
        "max_frame_bytes",
        "max_free",
        "scratch",
        "size_field",
        "waiters",
    )

    def __init__(
        self, max_frame_bytes: int, max_bytes: int = UNLIMITED, keep_bytes: int = _KEEP_BYTES, max_free: int = 8
    ):
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.size_field = self.scratch[:SIZE_BYTES]
        self.max_frame_bytes = max_frame_bytes
        self.max_bytes = max_bytes
        """`queued.max.request.bytes`; -1: unlimited."""
        self.cautious_above: float = max_bytes // 2 if max_bytes >= 0 else float("inf")
        """While `held_bytes` is larger, connections read the size of a frame before the frame."""
        self.keep_bytes = keep_bytes if max_bytes < 0 else min(keep_bytes, max_bytes // 4)
        """Connections keep their buffers between frames while all buffers together are not larger than this."""
        self.max_free = max_free
        self.held_bytes = 0
        """The size of all buffers of connections, and of the started frames that have no buffer yet."""
        self.holders: set[BufferHolder] = set()
        self.waiters: dict[BufferHolder, tuple[int, Callable[[], object]]] = {}
        """The holders whose next frame does not fit, in the order in which they came: its size, and a callback."""
        self._carried_bytes = 0
        self._huge_bytes = 0
        self._free: list[memoryview] = []
        self._taken = False

    def admits(self, size: int) -> bool:
        """Returns True if a buffer of this size can be taken within the limit. Frees unused buffers if necessary."""
        if self._fits(size):
            return True
        for holder in list(self.holders):
            holder.release_if_unused(at_once=True)
        return self._fits(size)

    def _fits(self, size: int) -> bool:
        if self.max_bytes < 0 or size <= CARRY_BYTES:
            return True
        if size > LARGE_BYTES:
            return not self._huge_bytes or self.held_bytes + size <= self.max_bytes * 3 // 4
        ordinary_bytes = self.held_bytes - self._huge_bytes - self._carried_bytes
        quarter = max(self.max_bytes // 4, LARGE_BYTES)
        return self.held_bytes + LARGE_BYTES <= self.max_bytes or ordinary_bytes + LARGE_BYTES <= quarter

    def take(self, size: int) -> memoryview:
        """Returns a buffer of at least this size with undefined content."""
        if size > CARRY_BYTES:
            # Rounded up, so that a slightly larger frame also fits.
            size = LARGE_BYTES if size <= LARGE_BYTES else -(-size // _ROUND_BYTES) * _ROUND_BYTES
        buffer = self._free.pop() if size == LARGE_BYTES and self._free else _map(size)
        self.held_bytes += len(buffer)
        if len(buffer) > LARGE_BYTES:
            self._huge_bytes += len(buffer)
        self._taken = True
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        size = len(buffer)
        self.held_bytes -= size
        if size > LARGE_BYTES:
            self._huge_bytes -= size
        elif size == LARGE_BYTES and len(self._free) < self.max_free:
            self._free.append(buffer)
        if self.waiters:
            self._admit_waiters()

    def carried(self, change: int) -> None:
        """Notes a change of the bytes that connections carry outside of buffers."""
        self.held_bytes += change
        self._carried_bytes += change
        if change < 0 and self.waiters:
            self._admit_waiters()

    def _admit_waiters(self) -> None:
        for holder, (size, granted) in list(self.waiters.items()):
            # An earlier one of them may have given memory back, which admitted others.
            if holder in self.waiters and self._fits(size):
                del self.waiters[holder]
                try:
                    holder.take_buffer(size)
                except OSError as error:
                    _logger.warning("Requests wait: cannot allocate %d bytes to receive one: %s", size, error)
                    self.waiters[holder] = size, granted
                    return
                granted()

    def trim(self) -> None:
        """Frees the buffers that were not used since the last call, and retries allocations that failed."""
        for holder in list(self.holders):
            holder.release_if_unused()
        if not self._taken:
            self._free.clear()
        self._taken = False
        if self.waiters:
            self._admit_waiters()


def _map(size: int) -> memoryview:
    buffer = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # A huge page would cost 2 MB for the first byte. Kernels without huge pages reject the advice.
        with suppress(OSError):
            buffer.madvise(mmap.MADV_NOHUGEPAGE)
    return memoryview(buffer)
