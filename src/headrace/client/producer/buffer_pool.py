"""The memory for records that wait to be sent: at most `buffer.memory` bytes, with reused buffers of two sizes.

    memory = buffers in use + free buffers of these two sizes (pooled) + other free bytes (unpooled)

A batch starts with a buffer of the usual size. Busy partitions end with a large one. Buffers are reused because the
allocator fragments badly when large blocks are allocated, grown and freed: half of its memory would be holes.

Allocation has four cases:
  A. A buffer of the usual size, and one is free: take that.
  B. Enough unpooled memory: a new buffer.
  C. Enough memory if free buffers are dropped: drop as many as needed, then B.
  D. Not enough memory: wait in a queue. Returned memory goes to the first waiter, in pieces if necessary; later callers
     get none before it, however little they need.

Thread-safe. The lock is held briefly, and never while callbacks run.
"""

import threading
from collections import deque
from collections.abc import Callable

from headrace.client.producer._batch import resize_buffer

__all__ = ["BufferPool", "MemoryWaiter"]

_SPARE_BUFFERS = 4
_SPARE_BYTES = 256 * 1024
"""The allocator itself reuses smaller blocks."""


class MemoryWaiter:
    """A caller that waits for memory. `wake` is called once, by the thread that returns the last missing bytes. The
    memory is then in `buffer`, or only counted if `wants_buffer` is False."""

    __slots__ = ("buffer", "granted_bytes", "is_served", "size", "wake", "wants_buffer")

    def __init__(self, size: int, wake: Callable[[], object], wants_buffer: bool):
        self.size = size
        self.wake = wake
        self.wants_buffer = wants_buffer
        self.is_served = False
        self.granted_bytes = 0
        self.buffer: bytearray | None = None


class BufferPool:
    """The buffer memory of a producer."""

    def __init__(self, memory_bytes: int, usual_bytes: int, large_bytes: int = 0):
        """`large_bytes` is larger than `usual_bytes`, or 0 for no large buffers."""
        self.memory_bytes = memory_bytes
        self.usual_bytes = usual_bytes
        self.large_bytes = large_bytes
        self._lock = threading.Lock()
        self._free: list[bytearray] = []
        self._free_large: list[bytearray] = []
        self._unpooled_bytes = memory_bytes
        self._waiters: deque[MemoryWaiter] = deque()
        self._used_waiters: list[tuple[int, Callable[[], object]]] = []
        """Callers that wait until less memory is used: the limit in bytes, and the function to call then."""
        self.spare: list[bytearray] = []
        """A few large buffers of encoded Arrow tables, for reuse. They do not count as used memory."""

    @property
    def available_bytes(self) -> int:
        """The memory that is free, pooled or not."""
        with self._lock:
            return self._available()

    def _available(self) -> int:
        return self._unpooled_bytes + len(self._free) * self.usual_bytes + len(self._free_large) * self.large_bytes

    @property
    def used_bytes(self) -> int:
        """The memory in use. Read without the lock, so it may be out of date."""
        return self.memory_bytes - self._available()

    @property
    def is_exhausted(self) -> bool:
        """True if callers wait for memory. Read without the lock, so it may be out of date."""
        return bool(self._waiters)

    def take(self, size: int) -> bytearray | None:
        """Returns a buffer of `size` bytes, or None if there is not enough memory or others wait for it."""
        with self._lock:
            return None if self._waiters else self._take(size)

    def _take(self, size: int) -> bytearray | None:
        if size == self.usual_bytes and self._free:
            return self._free.pop()
        if self._available() < size:
            return None
        self._drop_free(size)
        self._unpooled_bytes -= size
        return _new_buffer(size)

    def _drop_free(self, needed_bytes: int) -> None:
        """Drops free buffers until enough memory is unpooled."""
        while self._unpooled_bytes < needed_bytes:
            if self._free_large:
                self._free_large.pop()
                self._unpooled_bytes += self.large_bytes
            elif self._free:
                self._free.pop()
                self._unpooled_bytes += self.usual_bytes
            else:
                break

    def enqueue(self, size: int, wake: Callable[[], object], wants_buffer: bool = True) -> MemoryWaiter:
        """Waits in the queue for `size` bytes. If they are free already, `wake` is called before this returns."""
        if size > self.memory_bytes:
            raise ValueError(f"Cannot allocate {size} bytes: the buffer pool has {self.memory_bytes} bytes in total")
        waiter = MemoryWaiter(size, wake, wants_buffer)
        with self._lock:
            self._waiters.append(waiter)
            served = self._serve()
        _wake(served)
        return waiter

    def leave(self, waiter: MemoryWaiter) -> None:
        """Removes a waiter from the queue, and returns the memory that it was granted meanwhile."""
        with self._lock:
            if waiter.is_served:
                self._put_back(waiter.buffer, waiter.size)
                waiter.buffer = None
            else:
                self._waiters.remove(waiter)
                self._unpooled_bytes += waiter.granted_bytes
                waiter.granted_bytes = 0
            served = self._serve()
        _wake(served)

    def give_back(self, buffer: bytearray | None, size: int) -> None:
        """Returns memory to the pool. `buffer` is None if the buffer itself cannot be reused."""
        with self._lock:
            self._put_back(buffer, size)
            served = self._serve()
            below = self._take_used_waiters() if self._used_waiters else []
        _wake(served)
        for wake in below:
            wake()

    def when_used_below(self, limit_bytes: int, wake: Callable[[], object]) -> bool:
        """Returns True if at most `limit_bytes` are used. Otherwise calls `wake` once when memory was returned and that
        is so."""
        with self._lock:
            if self.used_bytes <= limit_bytes:
                return True
            self._used_waiters.append((limit_bytes, wake))
            return False

    def _take_used_waiters(self) -> list[Callable[[], object]]:
        used = self.used_bytes
        below = [wake for limit, wake in self._used_waiters if used <= limit]
        self._used_waiters = [entry for entry in self._used_waiters if used > entry[0]]
        return below

    def keep(self, buffer: bytearray) -> None:
        """Keeps a large buffer that was allocated elsewhere, for reuse."""
        if len(buffer) >= _SPARE_BYTES and len(self.spare) < _SPARE_BUFFERS:
            self.spare.append(buffer)

    def take_over(self, size: int) -> bool:
        """Counts `size` bytes that were allocated elsewhere as used. Returns False if there is not enough memory."""
        with self._lock:
            if self._waiters or self._available() < size:
                return False
            self._drop_free(size)
            self._unpooled_bytes -= size
            return True

    def exchange(self, size: int) -> bytearray | None:
        """Returns a large buffer in exchange for one of `size` bytes, which no longer counts as used. Returns None if
        there is not enough memory for the difference, or others wait for it."""
        additional_bytes = self.large_bytes - size
        with self._lock:
            if self._waiters or additional_bytes < 0:
                return None
            if self._free_large:
                self._unpooled_bytes += size
                return self._free_large.pop()
            if self._available() < additional_bytes:
                return None
            self._drop_free(additional_bytes)
            self._unpooled_bytes -= additional_bytes
        return _new_buffer(self.large_bytes)

    def _put_back(self, buffer: bytearray | None, size: int) -> None:
        if size == self.usual_bytes and buffer is not None and resize_buffer(buffer, size):
            self._free.append(buffer)
        elif size == self.large_bytes and buffer is not None and resize_buffer(buffer, size):
            self._free_large.append(buffer)
        else:
            self._unpooled_bytes += size

    def _serve(self) -> list[MemoryWaiter]:
        """Grants free memory to the waiters in order. Returns those that have all their memory."""
        served: list[MemoryWaiter] = []
        while self._waiters:
            waiter = self._waiters[0]
            if waiter.size == self.usual_bytes and self._free and waiter.wants_buffer:
                waiter.buffer = self._free.pop()
                self._unpooled_bytes += waiter.granted_bytes
            else:
                missing = waiter.size - waiter.granted_bytes
                self._drop_free(missing)
                granted_bytes = min(missing, self._unpooled_bytes)
                waiter.granted_bytes += granted_bytes
                self._unpooled_bytes -= granted_bytes
                if waiter.granted_bytes < waiter.size:
                    break
                if waiter.wants_buffer:
                    waiter.buffer = _new_buffer(waiter.size)
            waiter.granted_bytes = 0
            waiter.is_served = True
            served.append(self._waiters.popleft())
        return served


def _new_buffer(size: int) -> bytearray:
    """Returns a buffer that is not cleared: a batch is written from its first byte, and only written bytes are sent."""
    buffer = bytearray()
    resize_buffer(buffer, size)
    return buffer


def _wake(waiters: list[MemoryWaiter]) -> None:
    for waiter in waiters:
        waiter.wake()
