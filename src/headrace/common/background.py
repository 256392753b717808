"""Background work and scheduled work.

One thread owns a log's state; in a broker it is the event loop's thread. Blocking work (fsync, unlink, compaction) goes
to a BackgroundRunner as two functions:

- `work` runs on any thread and uses no shared state.
- `done` runs on the owner's thread with the result and applies it.
"""

import heapq
import itertools
import queue
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from headrace.common.clock import Clock

Result = TypeVar("Result")


class WorkResult:
    """The result of background work: a value, or the exception that it raised."""

    __slots__ = ("error", "value")

    def __init__(self, value: object = None, error: BaseException | None = None):
        self.value = value
        self.error = error

    def result(self) -> object:
        if self.error is not None:
            raise self.error
        return self.value


def _run(work: Callable[[], object]) -> WorkResult:
    try:
        return WorkResult(work())
    except Exception as error:  # noqa: BLE001 - passed to `done`, which handles it
        return WorkResult(error=error)


class BackgroundRunner(Protocol):
    """Runs blocking work outside the owner's thread."""

    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None: ...


class OwnedRunner(BackgroundRunner, Protocol):
    """A runner whose owner calls `drain` to run the `done` functions of finished work."""

    def drain(self, wait: bool = False) -> None:
        """Runs the `done` functions of finished work. With `wait`, waits until all work is finished."""
        ...

    def close(self) -> None:
        """Waits for all work."""
        ...


class RunnerFactory(Protocol):
    """Creates a runner with a number of threads. The runner calls `wake` when its owner should call `drain`."""

    def __call__(self, threads: int, wake: Callable[[], None]) -> OwnedRunner: ...


class RunInThread(Protocol):
    """Runs blocking work outside the loop's thread. Returns its result."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]: ...


class InlineRunner:
    """Runs the work immediately in the caller's thread, for tests and for tools that may block."""

    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None:
        done(_run(work))


class ThreadRunner:
    """Runs the work in a thread pool. The owner calls `drain` to run the `done` functions of finished work."""

    def __init__(self, threads: int = 2, wake: Callable[[], None] = lambda: None):
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="headrace-background")
        self._finished: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._wake = wake
        self._pending = 0

    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None:
        self._pending += 1

        def run() -> None:
            result = _run(work)
            self._finished.put(lambda: done(result))
            self._wake()

        self._pool.submit(run)

    def drain(self, wait: bool = False) -> None:
        """Runs the `done` functions of finished work. With `wait`, waits until all work is finished."""
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
    """Calls functions later, once or periodically. The owner's thread drives it with `tick`."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[], object], int | None]] = []
        self._order = itertools.count()

    def after(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Calls `action` once after the delay."""
        self._push(self._now_ms() + delay_ms, action, None)

    def every(self, period_ms: int, action: Callable[[], object], initial_delay_ms: int | None = None) -> None:
        """Calls `action` periodically, first after `initial_delay_ms` (default: one period)."""
        first_delay_ms = period_ms if initial_delay_ms is None else initial_delay_ms
        self._push(self._now_ms() + first_delay_ms, action, period_ms)

    def _now_ms(self) -> int:
        """Returns monotonic time, so that changing the system clock neither delays nor triggers tasks."""
        return round(self._clock.monotonic() * 1000)

    def _push(self, at_ms: int, action: Callable[[], object], period_ms: int | None) -> None:
        heapq.heappush(self._due, (at_ms, next(self._order), action, period_ms))

    def tick(self) -> int | None:
        """Calls the functions that are due. Returns the time in ms until the next one; None if there is none."""
        now = self._now_ms()
        while self._due and self._due[0][0] <= now:
            _, _, action, period_ms = heapq.heappop(self._due)
            if period_ms is not None:
                self._push(now + period_ms, action, period_ms)
            action()
        return max(0, self._due[0][0] - now) if self._due else None
