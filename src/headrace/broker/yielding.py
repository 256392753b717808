"""Lets the event loop serve other requests while a handler processes thousands of items.

A handler with a list asks `RequestContext.turn_is_over` after each item, and then gives way:

    a generator     if context.turn_is_over():
                        yield
    a coroutine     await context.give_way()

All handlers that have given way wait in one `TurnQueue`. In each iteration of the loop only the first of them
continues, for one more turn. So other requests wait for one turn at most, however many long requests there are.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

from headrace.common.clock import Clock

TURN_SECONDS = 0.002
ITEMS_PER_PART = 20

T = TypeVar("T")
InTurns = Generator[None, None, T]
"""Work that gives way at each `yield`, and returns a T."""


def parts(items: Sequence[T], size: int = ITEMS_PER_PART) -> Iterator[Sequence[T]]:
    """Yields a list in parts, each of which is processed at once."""
    if len(items) <= size:
        yield items
        return
    for start in range(0, len(items), size):
        yield items[start : start + size]


def consumed_parts(items: list[T], size: int = ITEMS_PER_PART) -> Iterator[list[T]]:
    """Yields a list in parts and removes them from it, so that they are freed in between."""
    items.reverse()
    while items:
        part = items[-size:]
        del items[-size:]
        part.reverse()
        yield part


def run_at_once(work: InTurns[T]) -> T:
    """Runs all of the work without giving way. Returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result


class Turn:
    """Measures how long a handler has worked since it last gave way."""

    __slots__ = ("_ends", "_now", "given_way")

    def __init__(self, clock: Clock):
        self._now = clock.monotonic
        self._ends = 0.0
        """0 before the first item of a turn."""
        self.given_way = False

    def is_over(self) -> bool:
        """Returns True if the caller has to give way now. Its next turn begins with its next call."""
        now = self._now()
        if not self._ends:
            self._ends = now + TURN_SECONDS
            return False
        if now < self._ends:
            return False
        self._ends = 0.0
        self.given_way = True
        return True


class TurnQueue:
    """Work that waits for its next turn. Owned by the broker's loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._scheduled = False
        self._closed = False
        self.turns = 0
        """The number of turns so far."""

    def add(self, resume: Callable[[], object]) -> None:
        """Calls `resume` in a later iteration of the loop, after the work that waits already."""
        if not self._closed:
            self._waiting.append(resume)
            self._schedule()

    def close(self) -> None:
        """Drops all waiting work, and what is added later: the broker stops, and its logs close."""
        self._closed = True
        self._waiting.clear()

    async def wait(self) -> None:
        """Waits for a turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(lambda: None if turn.done() else turn.set_result(None))
        await turn

    def _run_first(self) -> None:
        self._scheduled = False
        if not self._waiting:
            return  # closed
        self.turns += 1
        resume = self._waiting.popleft()
        self._schedule()
        resume()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run_first)
