"""User callbacks: rebalance listeners, commit callbacks and interceptors that the thread that polls has to run.

The loop adds a callback. A poll runs all waiting callbacks. The loop waits until a rebalance listener has run, in the
order of the rebalance. It does not wait for commit callbacks.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class UserCallback(NamedTuple):
    """A function to run within a poll, and the future that completes when it has run."""

    function: Callable[[], object] | None
    """None if the loop only waits for the user to poll."""
    future: "asyncio.Future[None] | None"


class UserCallbacks:
    """A queue of user callbacks. The loop calls `wait` and `add`, the thread that polls calls `take` and `finish`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, notify: Callable[[], None]):
        """`notify` wakes a waiting poll."""
        self._loop = loop
        self._notify = notify
        self._waiting: deque[UserCallback] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, function: Callable[[], object] | None) -> None:
        """Returns when a poll has run `function`. The poll raises the errors of `function`."""
        callback = UserCallback(function, self._loop.create_future())
        self._waiting.append(callback)
        self._notify()
        assert callback.future is not None
        try:
            await callback.future
        finally:
            if not callback.future.done() or callback.future.cancelled():
                self._withdraw(callback)

    def add(self, function: Callable[[], object]) -> None:
        """Lets a later poll run `function`."""
        self._waiting.append(UserCallback(function, None))
        self._notify()

    def _withdraw(self, callback: UserCallback) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(callback)

    def take(self) -> UserCallback | None:
        """Returns the next callback to run, or None if there is none."""
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def finish(self, callback: UserCallback) -> None:
        """Completes a callback that has run, with or without an error."""
        if callback.future is not None:
            with contextlib.suppress(RuntimeError):  # the loop has stopped
                self._loop.call_soon_threadsafe(_complete, callback.future)


def _complete(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
