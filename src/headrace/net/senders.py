"""Sender threads: send the large responses of connections whose sockets are full.

The loop sends the start of a response. If much remains when the socket is full, an idle sender thread sends the rest,
so that neither the peer nor other connections wait for the loop. Without an idle thread the loop continues. A peer that
reads slowly goes back to the loop after a short time, so that it does not occupy a thread.

The loop owns everything here except `_run`, which runs in the threads.
"""

import asyncio
import errno
import logging
import queue
import threading
from collections.abc import Callable
from functools import partial

from headrace.net._send_parts import send_parts
from headrace.net.transport import Part

_logger = logging.getLogger(__name__)

STALLED_MS = 20
"""A peer that takes no bytes for this long goes back to the loop."""
MOST_MS = 200
"""A response that takes longer goes back to the loop, so that other responses get the thread."""

_Job = tuple[Callable[[], tuple[int, int]], Callable[[int, int], None]]


class SenderThreads:
    """A few threads, started when they are first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, size: int):
        self.idle = size
        """The number of responses that can be taken now."""
        self._loop = loop
        self._size = size
        self._threads: list[threading.Thread] = []
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()

    def submit(self, fd: int, parts: list[Part], sent_of_first: int, on_done: Callable[[int, int], None]) -> None:
        """Sends parts in a thread. Then calls `on_done` on the loop with the bytes sent and the error number, or 0.

        The socket must stay open until then. Call it only if a thread is idle.
        """
        self.submit_work(partial(send_parts, fd, parts, sent_of_first, STALLED_MS, MOST_MS), on_done)

    def submit_work(self, work: Callable[[], tuple[int, int]], on_done: Callable[[int, int], None]) -> None:
        """Runs work that sends, and returns what `submit` passes to `on_done`. Call it only if a thread is idle."""
        if len(self._threads) < self._size and len(self._threads) == self._size - self.idle:
            thread = threading.Thread(target=self._run, name=f"sender-{len(self._threads)}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self.idle -= 1
        self._jobs.put((work, on_done))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, on_done = job
            try:
                sent, error = work()
            except Exception:
                _logger.exception("Closing a connection: sending a response failed with an internal error")
                sent, error = 0, errno.EIO
            self._loop.call_soon_threadsafe(self._done, on_done, sent, error)
            del job, work, on_done  # they keep files open

    def _done(self, on_done: Callable[[int, int], None], sent: int, error: int) -> None:
        self.idle += 1
        on_done(sent, error)

    def close(self) -> None:
        """Ends the threads. Call it when no response is being sent."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
