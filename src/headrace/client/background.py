"""The thread behind a blocking client: an event loop that the client's core lives on.

    thread = LoopThread("headrace-producer")
    core = thread.run(make_core())            # blocks until the coroutine has returned, on the other loop
    thread.call(core.wake)                    # soon, without waiting
    thread.stop()

The thread is a daemon, so that a program that forgets `close` can end. `run` may be called from any thread but the
loop's own; a KeyboardInterrupt in the caller cancels what it waited for.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError as FutureCancelledError
from typing import Any, TypeVar

from headrace.client.errors import IllegalStateError

__all__ = ["LoopThread"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
_STOP_SECONDS = 10.0


class LoopThread:
    def __init__(self, name: str):
        self.loop = asyncio.new_event_loop()
        self._stopped = False
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

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
        if self._stopped or self.is_current:
            coroutine.close()
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
            logger.debug("the loop has ended; %r is not called", function)

    def stop(self) -> None:
        """Ends the loop, and what runs on it. May be called twice, and from the loop itself, which does not wait."""
        with self._guard:
            if self._stopped:
                return
            self._stopped = True
        self.call(self.loop.stop)
        if not self.is_current:
            self._thread.join(_STOP_SECONDS)
