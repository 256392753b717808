"""The user's callbacks: code of the user that the loop wants to have run, inside of a poll, by the thread that polls.

The loop adds a callback and waits for it; a poll takes callbacks until there are none. Rebalance listeners go
this way (in the
order of the rebalance), and so do the callbacks of commits, for which nobody waits.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class UserCallback(NamedTuple):
    function: Callable[[], object] | None
    """None if it only matters that the user is in a poll."""
    future: "asyncio.Future[None] | None"


class UserCallbacks:
    """`add` belongs to the loop, `take` and `finish` to the thread that polls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, notify: Callable[[], None]):
        """`notify` wakes a poll that waits."""
        self._loop = loop
        self._notify = notify
        self._waiting: deque[UserCallback] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, function: Callable[[], object] | None) -> None:
        """Returns when the user's thread has run a function. What it raises comes out of the poll, not out of here."""
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
        """Has a function run some time."""
        self._waiting.append(UserCallback(function, None))
        self._notify()

    def _withdraw(self, callback: UserCallback) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(callback)

    def take(self) -> UserCallback | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def finish(self, callback: UserCallback) -> None:
        """The user's code has run, well or not."""
        if callback.future is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it who waited
                self._loop.call_soon_threadsafe(_finished, callback.future)


def _finished(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
