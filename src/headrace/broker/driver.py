"""Drives the broker's timers on its event loop: the timing wheel, periodic work, and results of background threads.

Everything is called on the loop's thread, except for `wake`, which any thread may call.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from headrace.common.background import RunnerFactory, ThreadRunner
from headrace.common.clock import Clock
from headrace.common.timing_wheel import Timer

_logger = logging.getLogger(__name__)

_LONGEST_SLEEP_MS = 60_000


class Driver:
    """The timing wheel, periodic work and background threads of one broker."""

    def __init__(
        self,
        clock: Clock,
        threads: int,
        make_runner: RunnerFactory = ThreadRunner,
    ):
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._periodic: list[asyncio.Handle] = []
        self._stopped = False
        self.timer = Timer(clock, on_earlier=self._set_alarm)
        self.runner = make_runner(threads, self.wake)

    # ---- timing wheel

    def _set_alarm(self) -> None:
        due_ms = self.timer.next_due_ms()
        if due_ms is None or self._stopped:
            return
        due_at = self._loop.time() + due_ms / 1000
        if self._alarm is not None:
            if self._alarm_at <= due_at:
                return
            self._alarm.cancel()
        self._alarm_at = due_at
        self._alarm = self._loop.call_at(due_at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.timer.advance()
        self._set_alarm()

    # ---- periodic work

    def keep_ticking(self, tick: Callable[[], int | None]) -> None:
        """Calls `tick` repeatedly, each time after the number of milliseconds that it returned."""
        slot = len(self._periodic)

        def run() -> None:
            if self._stopped:
                return
            try:
                due_ms = tick()
            except Exception:
                _logger.exception("Periodic work failed, will retry in 1 second")
                due_ms = 1000
            delay_ms = _LONGEST_SLEEP_MS if due_ms is None else min(max(due_ms, 1), _LONGEST_SLEEP_MS)
            self._periodic[slot] = self._loop.call_later(delay_ms / 1000, run)

        self._periodic.append(self._loop.call_soon(run))

    def every(self, period_ms: int, action: Callable[[], object]) -> None:
        """Calls `action` once per period, for the first time after one period."""
        first = True

        def tick() -> int:
            nonlocal first
            if not first:
                action()
            first = False
            return period_ms

        self.keep_ticking(tick)

    # ---- background threads

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed; `close` has waited for all work
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        if self._stopped:
            return  # the thread that closes the logs may own them; `close` drains
        try:
            self.runner.drain()
        except Exception:
            _logger.exception("The completion of background work failed")

    def stop_ticking(self) -> None:
        """Stops the timing wheel and periodic work."""
        self._stopped = True
        if self._alarm is not None:
            self._alarm.cancel()
        for handle in self._periodic:
            handle.cancel()

    def close(self) -> None:
        """Stops everything and waits for background work."""
        self.stop_ticking()
        self.runner.close()
