"""Waiting for another thread, in a way that Ctrl-C cannot break.

A signal handler runs between any two steps of the main thread's Python code and may raise there. `threading.Event` and
`concurrent.futures.Future` take their locks in Python code: a handler that raises inside leaves the lock locked, and
the next thread that uses the object waits forever. The classes here use only operations that are single steps.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from headrace.client.errors import IllegalStateError

__all__ = ["InterruptibleEvent", "LoopFuture"]

T = TypeVar("T")


class InterruptibleEvent:
    """`threading.Event` for clients. If another thread clears the event, `wait` may return False early."""

    def __init__(self) -> None:
        self._is_set = False
        self._gate = threading.Lock()  # locked while the event is not set
        self._gate.acquire()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._open_gate()

    def clear(self) -> None:
        self._is_set = False
        self._gate.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the event is set, at most `timeout` seconds. Returns True if it is set."""
        if self.is_set():
            return True
        seconds = -1.0 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)
        if self._gate.acquire(timeout=seconds) and self.is_set():
            self._open_gate()  # for other waiting threads
        return self.is_set()

    def _open_gate(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is open
            self._gate.release()


class LoopFuture(Generic[T]):
    """The result of a coroutine that runs on the loop of another thread. Any thread may use it.

    The loop's thread runs the callbacks, or `add_done_callback` itself if the coroutine is done already.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]):
        """Schedules the coroutine. Raises RuntimeError if the loop is closed."""
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        self._is_cancel_requested = False
        self._finished = InterruptibleEvent()
        self._callbacks: deque[Callable[[LoopFuture[T]], object]] = deque()
        loop.call_soon_threadsafe(self._start, coroutine)

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(coroutine)
        self._task.add_done_callback(self._finish)
        if self._is_cancel_requested:
            self._task.cancel()

    def _finish(self, task: "asyncio.Task[T]") -> None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved: asyncio would report an error that nobody asks for
        self._finished.set()
        self._run_callbacks()

    def _run_callbacks(self) -> None:
        while True:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # none is left, or another thread took the last one
                return
            callback(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of the coroutine, at most `timeout` seconds. Returns True if it has ended."""
        return self._finished.wait(timeout)

    def done(self) -> bool:
        return self._finished.is_set()

    def cancel(self) -> None:
        """Requests the cancellation of the coroutine."""
        self._is_cancel_requested = True
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the coroutine has ended
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def cancelled(self) -> bool:
        return self.done() and self._ended_task().cancelled()

    def exception(self) -> BaseException | None:
        """Returns the error of the ended coroutine, or None."""
        task = self._ended_task()
        return None if task.cancelled() else task.exception()

    def result(self) -> T:
        """Waits for the end of the coroutine and returns its result, or raises its error."""
        self._finished.wait()
        task = self._ended_task()
        if task.cancelled():
            raise IllegalStateError("This client was closed during the call")
        return task.result()

    def add_done_callback(self, callback: "Callable[[LoopFuture[T]], object]") -> None:
        """Calls `callback(self)` when the coroutine has ended."""
        self._callbacks.append(callback)
        if self.done():
            self._run_callbacks()

    def _ended_task(self) -> "asyncio.Task[T]":
        assert self._task is not None, "the coroutine has not ended"
        return self._task
