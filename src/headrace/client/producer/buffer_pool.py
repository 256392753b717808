"""The memory that records wait in: at most `buffer.memory` bytes, and buffers of two sizes used again.

    memory = buffers in use + free buffers of these sizes (pooled) + bytes that are no buffer just now (unpooled)

Batches begin with a buffer of the usual size, and the busy ones end with a large one. These are used again because the
allocator makes poor use of large blocks that come, grow and go: half of its memory would be holes.

Taking memory has four cases:
  A. a buffer of the usual size, and one is free: that one;
  B. enough unpooled memory: a new buffer;
  C. enough if free buffers are dropped: as many as it takes are dropped, then B;
  D. not enough: the taker stands in line. What comes back goes to the first in line, bit by bit if need be, and nobody
  who comes later gets any before it, however little they ask for.

Any thread; a lock of its own, held for a few steps and never while something is called.
"""

import threading
from collections import deque
from collections.abc import Callable

from headrace.client.producer._batch import resize_buffer

__all__ = ["BufferPool", "MemoryWaiter"]

_SPARE_BUFFERS = 4
_SPARE_BYTES = 256 * 1024
"""Smaller ones the allocator keeps by itself."""


class MemoryWaiter:
    """A place in line. `wake` is called once, by who gives back the last bytes, when the memory is there: as `buffer`,
    or only counted if no buffer is wanted."""

    __slots__ = ("buffer", "got_bytes", "is_served", "size", "wake", "wants_buffer")

    def __init__(self, size: int, wake: Callable[[], object], wants_buffer: bool):
        self.size = size
        self.wake = wake
        self.wants_buffer = wants_buffer
        self.is_served = False
        self.got_bytes = 0
        self.buffer: bytearray | None = None


class BufferPool:
    def __init__(self, memory_bytes: int, usual_bytes: int, large_bytes: int = 0):
        """`large_bytes` is 0, or more than `usual_bytes`."""
        self.memory_bytes = memory_bytes
        self.usual_bytes = usual_bytes
        self.large_bytes = large_bytes
        self._lock = threading.Lock()
        self._free: list[bytearray] = []
        self._free_large: list[bytearray] = []
        self._unpooled_bytes = memory_bytes
        self._line: deque[MemoryWaiter] = deque()
        self.spare: list[bytearray] = []
        """A few large buffers that tables were encoded into, to be used again; not counted."""

    @property
    def available_bytes(self) -> int:
        """What can be taken now, pooled or not."""
        with self._lock:
            return self._available()

    def _available(self) -> int:
        return self._unpooled_bytes + len(self._free) * self.usual_bytes + len(self._free_large) * self.large_bytes

    @property
    def used_bytes(self) -> int:
        """What records wait in. May be old news by the time it is read."""
        return self.memory_bytes - self._available()

    @property
    def is_exhausted(self) -> bool:
        """Whether somebody waits. May be old news by the time it is read."""
        return bool(self._line)

    def take(self, size: int) -> bytearray | None:
        """A buffer of `size` bytes, or None if there is not enough memory, or others wait for it."""
        with self._lock:
            return None if self._line else self._take(size)

    def _take(self, size: int) -> bytearray | None:
        if size == self.usual_bytes and self._free:
            return self._free.pop()
        if self._available() < size:
            return None
        self._drop_free(size)
        self._unpooled_bytes -= size
        return _new_buffer(size)

    def _drop_free(self, wanted_bytes: int) -> None:
        while self._unpooled_bytes < wanted_bytes:
            if self._free_large:
                self._free_large.pop()
                self._unpooled_bytes += self.large_bytes
            elif self._free:
                self._free.pop()
                self._unpooled_bytes += self.usual_bytes
            else:
                break

    def enqueue(self, size: int, wake: Callable[[], object], wants_buffer: bool = True) -> MemoryWaiter:
        """A place in line for `size` bytes; if they are there already, `wake` has been called."""
        if size > self.memory_bytes:
            raise ValueError(f"{size} bytes will never be free: the pool has {self.memory_bytes}")
        waiter = MemoryWaiter(size, wake, wants_buffer)
        with self._lock:
            self._line.append(waiter)
            served = self._serve()
        _wake(served)
        return waiter

    def leave(self, waiter: MemoryWaiter) -> None:
        """Gives up a place in line, or what has come in the meantime."""
        with self._lock:
            if waiter.is_served:
                self._put_back(waiter.buffer, waiter.size)
                waiter.buffer = None
            else:
                self._line.remove(waiter)
                self._unpooled_bytes += waiter.got_bytes
                waiter.got_bytes = 0
            served = self._serve()
        _wake(served)

    def give_back(self, buffer: bytearray | None, size: int) -> None:
        """Returns memory; None if the buffer itself cannot be used again."""
        with self._lock:
            self._put_back(buffer, size)
            served = self._serve()
        _wake(served)

    def keep(self, buffer: bytearray) -> None:
        """A buffer that was made elsewhere is free, and may be wanted again soon."""
        if len(buffer) >= _SPARE_BYTES and len(self.spare) < _SPARE_BUFFERS:
            self.spare.append(buffer)

    def take_over(self, size: int) -> bool:
        """Counts `size` bytes as in use that were allocated elsewhere. False if there is no room for them."""
        with self._lock:
            if self._line or self._available() < size:
                return False
            self._drop_free(size)
            self._unpooled_bytes -= size
            return True

    def exchange(self, size: int) -> bytearray | None:
        """A large buffer in place of one of `size` bytes, or None if there is not enough memory for the difference, or
        others wait for it. The smaller one does not count any more."""
        more = self.large_bytes - size
        with self._lock:
            if self._line or more < 0:
                return None
            if self._free_large:
                self._unpooled_bytes += size
                return self._free_large.pop()
            if self._available() < more:
                return None
            self._drop_free(more)
            self._unpooled_bytes -= more
        return _new_buffer(self.large_bytes)

    def _put_back(self, buffer: bytearray | None, size: int) -> None:
        if size == self.usual_bytes and buffer is not None and resize_buffer(buffer, size):
            self._free.append(buffer)
        elif size == self.large_bytes and buffer is not None and resize_buffer(buffer, size):
            self._free_large.append(buffer)
        else:
            self._unpooled_bytes += size

    def _serve(self) -> list[MemoryWaiter]:
        """Gives what there is to those who wait, in order; returns those that have all they need."""
        served: list[MemoryWaiter] = []
        while self._line:
            waiter = self._line[0]
            if waiter.size == self.usual_bytes and self._free and waiter.wants_buffer:
                waiter.buffer = self._free.pop()
                self._unpooled_bytes += waiter.got_bytes
            else:
                missing = waiter.size - waiter.got_bytes
                self._drop_free(missing)
                given = min(missing, self._unpooled_bytes)
                waiter.got_bytes += given
                self._unpooled_bytes -= given
                if waiter.got_bytes < waiter.size:
                    break
                if waiter.wants_buffer:
                    waiter.buffer = _new_buffer(waiter.size)
            waiter.got_bytes = 0
            waiter.is_served = True
            served.append(self._line.popleft())
        return served


def _new_buffer(size: int) -> bytearray:
    """Not cleared: a batch is written from its first byte on, and only what was written is sent."""
    buffer = bytearray()
    resize_buffer(buffer, size)
    return buffer


def _wake(waiters: list[MemoryWaiter]) -> None:
    for waiter in waiters:
        waiter.wake()
