"""Work off the owner's thread, and work at a later time.

A log's state belongs to one thread, the owner's (in a broker: the event loop's). What blocks (fsync, unlinking,
compaction) is handed to a BackgroundRunner as two functions: `work` runs anywhere and touches no shared state; `done`
runs on the owner's thread with the outcome and applies it.
"""

import heapq
import itertools
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from headrace.common.clock import Clock


class WorkResult:
    """What background work came to: a value, or the exception that it raised."""

    __slots__ = ("error", "value")

    def __init__(self, value: object = None, error: BaseException | None = None):
        self.value = value
        self.error = error

    def result(self) -> object:
        if self.error is not None:
            raise self.error
        return self.value


def _outcome_of(work: Callable[[], object]) -> WorkResult:
    try:
        return WorkResult(work())
    except Exception as error:  # noqa: BLE001 - handed on to `done`, which looks at it
        return WorkResult(error=error)


class BackgroundRunner(Protocol):
    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None: ...


class InlineRunner:
    """Does the work at once, in the caller's thread: for tests and for tools that may wait."""

    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None:
        done(_outcome_of(work))


class ThreadRunner:
    """Does the work in a pool of threads. The owner calls `drain` to run what became of it."""

    def __init__(self, threads: int = 2, wake: Callable[[], None] = lambda: None):
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="headrace-background")
        self._finished: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._wake = wake
        self._pending = 0

    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None:
        self._pending += 1

        def run() -> None:
            outcome = _outcome_of(work)
            self._finished.put(lambda: done(outcome))
            self._wake()

        self._pool.submit(run)

    def drain(self, wait: bool = False) -> None:
        """Runs the `done` of what has finished; with `wait`, until nothing is under way any more."""
        while self._pending and (wait or not self._finished.empty()):
            finish = self._finished.get()
            self._pending -= 1
            finish()

    def close(self) -> None:
        try:
            self.drain(wait=True)
        finally:
            self._pool.shutdown()


class Scheduler:
    """Functions to be called later or again and again, on the owner's thread, by its calls of `tick`."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[], object], int | None]] = []
        self._order = itertools.count()

    def after(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Calls `action` once, not before the delay is over."""
        self._push(self._now_ms() + delay_ms, action, None)

    def every(self, period_ms: int, action: Callable[[], object], initial_delay_ms: int | None = None) -> None:
        first = period_ms if initial_delay_ms is None else initial_delay_ms
        self._push(self._now_ms() + first, action, period_ms)

    def _now_ms(self) -> int:
        """Steady time: setting the machine's clock neither stops the tasks nor sets them all off."""
        return round(self._clock.monotonic() * 1000)

    def _push(self, at_ms: int, action: Callable[[], object], period_ms: int | None) -> None:
        heapq.heappush(self._due, (at_ms, next(self._order), action, period_ms))

    def tick(self) -> int | None:
        """Calls what is due and returns in how many ms the next call is."""
        now = self._now_ms()
        while self._due and self._due[0][0] <= now:
            _, _, action, period_ms = heapq.heappop(self._due)
            if period_ms is not None:
                self._push(now + period_ms, action, period_ms)
            action()
        return max(0, self._due[0][0] - now) if self._due else None
