"""The user's turns: code of the user that the loop wants to have run, inside of a poll, by the thread that polls.

The loop adds a turn and waits for it; a poll takes turns until there are none. Rebalance listeners go this way (in the
order of the rebalance), and so do the callbacks of commits, for which nobody waits.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class Turn(NamedTuple):
    function: Callable[[], object] | None
    """None if it only matters that the user is in a poll."""
    future: "asyncio.Future[None] | None"


class Turns:
    """`add` belongs to the loop, `take` and `finish` to the thread that polls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, notify: Callable[[], None]):
        """`notify` wakes a poll that waits."""
        self._loop = loop
        self._notify = notify
        self._waiting: deque[Turn] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, function: Callable[[], object] | None) -> None:
        """Returns when the user's thread has run a function. What it raises comes out of the poll, not out of here."""
        turn = Turn(function, self._loop.create_future())
        self._waiting.append(turn)
        self._notify()
        assert turn.future is not None
        try:
            await turn.future
        finally:
            if not turn.future.done() or turn.future.cancelled():
                self._withdraw(turn)

    def add(self, function: Callable[[], object]) -> None:
        """Has a function run some time."""
        self._waiting.append(Turn(function, None))
        self._notify()

    def _withdraw(self, turn: Turn) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(turn)

    def take(self) -> Turn | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def finish(self, turn: Turn) -> None:
        """The user's code has run, well or not."""
        if turn.future is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it who waited
                self._loop.call_soon_threadsafe(_finished, turn.future)


def _finished(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
