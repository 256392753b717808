"""The thread of a blocking client, which runs the event loop of the client's core.

    thread, core = LoopThread.start("headrace-producer", create_core)
    thread.run(core.flush())                  # runs a coroutine on the loop and waits for its result
    thread.call(core.wake)                    # schedules a call on the loop without waiting
    thread.stop()

Any thread but the loop's own may call `run`. A KeyboardInterrupt in the caller cancels the coroutine.

The thread is a daemon, so a program that forgets `close` can exit. A client that is garbage-collected or still open at
exit is closed automatically (`close_automatically`). After a fork, only the forking thread exists in the child process.
There, the clients of the parent raise an error.
"""

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from headrace.client.errors import IllegalStateError
from headrace.client.waiting import LoopFuture

__all__ = ["FORKED", "LoopThread", "check_loop"]

_logger = logging.getLogger(__name__)

T = TypeVar("T")
_STOP_SECONDS = 10.0
_LAST_SECONDS = 5.0
"""How long the exit of the program may wait for clients that were left open."""

FORKED = "This client was created before a fork, in the parent process: create one in each process"


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raises IllegalStateError if the caller runs on another event loop than the client."""
    if asyncio.get_running_loop() is not loop:
        raise IllegalStateError("This client belongs to another event loop: use it on the loop that it was started on")


class Client(Protocol):
    """A blocking client."""

    def _forked(self) -> None:
        """Called in a child process: from now on calls raise an error and close() does nothing."""


class LoopThread:
    """A daemon thread that runs an event loop."""

    def __init__(self, name: str):
        self.loop = asyncio.new_event_loop()
        self._stopped = False
        self._is_forked = False
        self._guard = threading.Lock()
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _running.add(self)

    @classmethod
    def start(cls, name: str, create_core: Callable[[], Coroutine[Any, Any, T]]) -> "tuple[LoopThread, T]":
        """Starts a thread, creates a client's core on its loop, and returns both. Stops the thread if that fails."""
        thread = cls(name)
        try:
            return thread, thread.run(create_core())
        except BaseException:
            thread.stop()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            try:
                tasks = asyncio.all_tasks(self.loop)
                for task in tasks:
                    task.cancel()
                if tasks:
                    self.loop.run_until_complete(asyncio.wait(tasks))
                self.loop.run_until_complete(self.loop.shutdown_asyncgens())
                with contextlib.suppress(RuntimeError):  # the interpreter starts no threads at exit
                    self.loop.run_until_complete(self.loop.shutdown_default_executor())
            finally:
                asyncio.set_event_loop(None)
                self.loop.close()

    @property
    def is_current(self) -> bool:
        """True if the caller runs on this thread, where `run` would deadlock."""
        return threading.current_thread() is self._thread

    @property
    def is_alive(self) -> bool:
        return not self._stopped and self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and returns its result."""
        if self.is_current:
            coroutine.close()
            raise IllegalStateError("A blocking call from a callback of the client would wait for itself")
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> LoopFuture[T]:
        """Runs a coroutine on the loop and returns its future."""
        if self._is_forked or self._stopped:
            coroutine.close()
            self.check_process()
            raise IllegalStateError("This client is closed")
        try:
            return LoopFuture(self.loop, coroutine)
        except RuntimeError:  # closed concurrently
            coroutine.close()
            raise IllegalStateError("This client is closed") from None

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Schedules a call on the loop. Does nothing if the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            _logger.debug("Event loop is closed; %r is not called", function)

    def check_process(self) -> None:
        """Raises IllegalStateError in a child process."""
        if self._is_forked:
            raise IllegalStateError(FORKED)

    def close_automatically(self, client: Client, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Runs `close` on the loop and stops the thread if the client is garbage-collected or still open at exit.

        `close` must not refer to the client. `stop` cancels this.
        """
        self._finalizer = weakref.finalize(client, self._close_abandoned, type(client).__name__, close)
        self._finalizer.atexit = False  # see `_close_all`

    def _close_abandoned(self, client_name: str, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Closes an abandoned client. Runs in any thread, at any point, so it must not wait."""

        async def end() -> None:
            try:
                await close()
            except Exception:
                _logger.exception("Failed to close a %s that was left open; unsent records are lost", client_name)
            finally:
                self.stop()

        def start() -> None:
            self._last = self.loop.create_task(end())

        self.call(start)
        warnings.warn(
            f"headrace.{client_name} was left open: call close(), or use `with`", ResourceWarning, stacklevel=2
        )

    def _forked(self) -> None:
        self._is_forked = self._stopped = True
        self._guard = threading.Lock()
        details = None if self._finalizer is None else self._finalizer.detach()
        if details is not None:
            details[0]._forked()

    def stop(self) -> None:
        """Stops the loop and cancels its tasks. May be called twice. On the loop's own thread it does not wait."""
        if self._finalizer is not None:
            self._finalizer.detach()
        with self._guard:
            if self._stopped:
                return
            self._stopped = True
        self.call(self.loop.stop)
        if not self.is_current:
            self._thread.join(_STOP_SECONDS)


_running: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()
_inherited: list[LoopThread] = []
"""Threads of the parent process, kept for ever: freeing an inherited loop would remove its sockets from the parent's
selector."""


def _close_all() -> None:
    """Runs at exit: lets clients that were left open send their records."""
    left_open = []
    for thread in tuple(_running):
        details = None if thread._finalizer is None else thread._finalizer.detach()
        if details is not None:
            left_open.append(thread)
            with contextlib.suppress(ResourceWarning):  # where warnings are errors
                thread._close_abandoned(*details[2])
    for thread in left_open:
        thread._thread.join(_LAST_SECONDS)


def _after_fork() -> None:
    for thread in tuple(_running):
        _inherited.append(thread)
        _running.discard(thread)
        thread._forked()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
