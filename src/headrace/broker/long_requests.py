"""Requests with many array elements: only a few are in progress at a time, and the others wait undecoded.

A decoded request takes many times the memory of its bytes, and a handler adds its own. So the number of long requests
in progress bounds their memory; the bytes of those that wait count as received (`queued.max.request.bytes`). A
connection handles no further request until its long request is done, so its requests are handled in order.

They are decoded in a thread, and so are long responses encoded: the compiled codec releases the GIL every few elements.

Owned by the broker's loop.
"""

import asyncio
import gc
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from headrace.common.background import OwnedRunner, RunnerFactory, ThreadRunner, WorkResult
from headrace.net.connection import ServerConnection

SHORT_ELEMENTS = 500
"""A request with more array elements is a long request."""
MAX_IN_PROGRESS = 4
_NEVER = 2**31 - 1
_REQUESTS_PER_COLLECTION = 100

Handle = Callable[[memoryview, Callable[[], None]], None]
"""Handles a frame, and calls the function when it is done. The frame is valid until then."""


class LongRequests:
    """The long requests of all connections."""

    def __init__(self, make_runner: RunnerFactory = ThreadRunner) -> None:
        self._make_runner = make_runner
        self._runner: OwnedRunner | None = None
        self._waiting: deque[Callable[[], None]] = deque()
        self.in_progress = 0
        self._finished = 0
        self._gc_thresholds = (0, 0, 0)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, connection: ServerConnection, frame: memoryview, handle: Handle) -> None:
        """Calls `handle` with the frame when the requests before it are done."""
        kept = connection.keep_frame(frame)

        def finished() -> None:
            connection.release_frame()
            self._done()

        self._waiting.append(partial(handle, kept, finished))
        self._start_next()

    def run_in_thread(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None:
        """Calls `work` in the thread of the codec, and then `done` on the loop."""
        if self._runner is None:
            loop = asyncio.get_running_loop()
            self._runner = runner = self._make_runner(1, lambda: _call_soon(loop, runner.drain))
        self._runner.submit(work, done)

    def close(self) -> None:
        """Drops the requests that wait, when the broker stops."""
        self._waiting.clear()
        if self.in_progress:
            gc.set_threshold(*self._gc_thresholds)
        if self._runner is not None:
            self._runner.close()

    def _start_next(self) -> None:
        while self._waiting and self.in_progress < MAX_IN_PROGRESS:
            self.in_progress += 1
            if self.in_progress == 1:
                # A full collection would visit all objects of the long requests, for hundreds of milliseconds.
                self._gc_thresholds = gc.get_threshold()
                gc.set_threshold(self._gc_thresholds[0], self._gc_thresholds[1], _NEVER)
            self._waiting.popleft()()

    def _done(self) -> None:
        self.in_progress -= 1
        self._finished += 1
        if not self.in_progress:
            gc.set_threshold(*self._gc_thresholds)
        elif self._finished % _REQUESTS_PER_COLLECTION == 0:
            gc.collect()  # others may have left garbage since there are long requests all the time
        self._start_next()


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop is closed: the broker has stopped
        loop.call_soon_threadsafe(callback)
