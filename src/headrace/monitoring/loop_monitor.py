"""Watches an event loop and the garbage collector: how late timers are, and how long collections stop the process.

Runs on the loop that it watches: one timer ten times a second. Values of "lately" cover the last 10 to 20 seconds.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

from headrace.monitoring.snapshot import LoopStats

_TICK_SECONDS = 0.1
_TICKS_PER_WINDOW = 100


class _RecentMaximum:
    """The largest value in the current and the previous window."""

    __slots__ = ("_current", "_previous")

    def __init__(self) -> None:
        self._current = self._previous = 0.0

    @property
    def value(self) -> float:
        return max(self._current, self._previous)

    def note(self, value: float) -> None:
        if value > self._current:
            self._current = value

    def rotate(self) -> None:
        self._previous, self._current = self._current, 0.0


class LoopMonitor:
    """Call `start` on the loop, and `stop` in the end."""

    def __init__(self, now: Callable[[], float]):
        """`now` returns seconds of a monotonic clock."""
        self._now = now
        self._lag = _RecentMaximum()
        self._pause = _RecentMaximum()
        self._pause_seconds = 0.0
        self._collection_started = 0.0
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        gc.callbacks.append(self._collected)
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.callbacks.remove(self._collected)

    @property
    def stats(self) -> LoopStats:
        return LoopStats(self._lag.value, self._pause_seconds, self._pause.value)

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(loop.time() + _TICK_SECONDS, self._tick, self._now() + _TICK_SECONDS)

    def _tick(self, due: float) -> None:
        self._lag.note(max(0.0, self._now() - due))
        self._ticks += 1
        if self._ticks % _TICKS_PER_WINDOW == 0:
            self._lag.rotate()
            self._pause.rotate()
        self._schedule()

    def _collected(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._collection_started = self._now()
            return
        seconds = self._now() - self._collection_started
        self._pause_seconds += seconds
        self._pause.note(seconds)
