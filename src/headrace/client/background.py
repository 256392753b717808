"""The thread behind a blocking client: an event loop that the client's core lives on.

    thread = LoopThread("headrace-producer")
    core = thread.run(make_core())            # blocks until the coroutine has returned, on the other loop
    thread.call(core.wake)                    # soon, without waiting
    thread.stop()

`run` may be called from any thread but the loop's own; a KeyboardInterrupt in the caller cancels what it waited for.

The thread is a daemon, so that a program that forgets `close` can end. A client that is dropped or left open at the end
of the program is closed all the same, if it was put in the thread's care (`look_after`). In a child of a fork, where
only the thread that forked lives on, its clients refuse to be used.
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
from concurrent.futures import CancelledError as FutureCancelledError
from typing import Any, Protocol, TypeVar

from headrace.client.errors import IllegalStateError

__all__ = ["FORKED", "LoopThread", "check_loop"]

_logger = logging.getLogger(__name__)

T = TypeVar("T")
_STOP_SECONDS = 10.0
_LAST_SECONDS = 5.0
"""How long the end of the program may wait for clients that nobody closed."""

FORKED = "this client was made before a fork, in the parent process: make one in each process"


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raises if the caller runs on another loop than the client that it calls."""
    if asyncio.get_running_loop() is not loop:
        raise IllegalStateError("this client lives on another event loop, the one that it was started on")


class Client(Protocol):
    def _forked(self) -> None:
        """In a child process: calls of the user are to raise from now on, and close() to do nothing."""


class LoopThread:
    def __init__(self, name: str):
        self.loop = asyncio.new_event_loop()
        self._stopped = False
        self._is_forked = False
        self._guard = threading.Lock()
        self._care: weakref.finalize[Any, Any] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _running.add(self)

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
                with contextlib.suppress(RuntimeError):  # no new threads while the interpreter ends
                    self.loop.run_until_complete(self.loop.shutdown_default_executor())
            finally:
                asyncio.set_event_loop(None)
                self.loop.close()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on this very thread, where `run` would wait for itself."""
        return threading.current_thread() is self._thread

    @property
    def is_alive(self) -> bool:
        return not self._stopped and self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns, or raises, that runs on the loop."""
        if self._is_forked or self._stopped or self.is_current:
            coroutine.close()
            self.check_process()
            raise IllegalStateError(
                "this client is closed"
                if self._stopped
                else "a blocking call from a callback of the client would wait for itself"
            )
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:  # closed in this very moment
            coroutine.close()
            raise IllegalStateError("this client is closed") from None
        try:
            return future.result()
        except FutureCancelledError:
            raise IllegalStateError("this client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls a function on the loop, soon. Does nothing if the loop has ended."""
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            _logger.debug("the loop has ended; %r is not called", function)

    def check_process(self) -> None:
        """Raises if this is not the process that the thread runs in."""
        if self._is_forked:
            raise IllegalStateError(FORKED)

    def look_after(self, client: Client, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Has `close`, which must not refer to the client, run on the loop if the client is dropped, or left open at
        the end of the program; then the thread ends. `stop` puts an end to it."""
        self._care = weakref.finalize(client, self._left_open, type(client).__name__, close)
        self._care.atexit = False  # see `_close_all`

    def _left_open(self, what: str, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """From any thread, in the midst of whatever it does: does not wait."""

        async def end() -> None:
            try:
                await close()
            except Exception:
                _logger.exception("a %s that was left open could not be closed", what)
            finally:
                self.stop()

        def start() -> None:
            self._last = self.loop.create_task(end())

        self.call(start)
        warnings.warn(f"a headrace {what} was left open: call close(), or use `with`", ResourceWarning, stacklevel=2)

    def _forked(self) -> None:
        self._is_forked = self._stopped = True
        self._guard = threading.Lock()
        found = None if self._care is None else self._care.detach()
        if found is not None:
            found[0]._forked()

    def stop(self) -> None:
        """Ends the loop, and what runs on it. May be called twice, and from the loop itself, which does not wait."""
        if self._care is not None:
            self._care.detach()
        with self._guard:
            if self._stopped:
                return
            self._stopped = True
        self.call(self.loop.stop)
        if not self.is_current:
            self._thread.join(_STOP_SECONDS)


_running: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()
_of_the_parent: list[LoopThread] = []
"""Kept for good: when a loop that came with a fork is freed, it takes its sockets from the selector of the parent."""


def _close_all() -> None:
    """At the end of the program: clients that nobody closed get the chance to send what they have."""
    open_still = []
    for thread in tuple(_running):
        found = None if thread._care is None else thread._care.detach()
        if found is not None:
            open_still.append(thread)
            with contextlib.suppress(ResourceWarning):  # where warnings are errors
                thread._left_open(*found[2])
    for thread in open_still:
        thread._thread.join(_LAST_SECONDS)


def _after_fork() -> None:
    for thread in tuple(_running):
        _of_the_parent.append(thread)
        _running.discard(thread)
        thread._forked()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
