"""Progress of long work: one line on standard error that is updated in place, only if it is a terminal.

with Progress("records", total=1_000_000) as progress:
    progress.add(5000)                                  # 12% · 120,000 of 1,000,000 records · 48,000/s · 18 s left
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from headrace.common.clock import Clock, SystemClock

_EVERY_SECONDS = 0.2
T = TypeVar("T")


class Progress:
    """A progress line with count, rate and remaining time."""

    def __init__(self, what: str, total: int | None = None, clock: Clock | None = None, shown: bool | None = None):
        self._what, self._total = what, total
        self._clock = clock or SystemClock()
        self._shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" if shown is None else shown
        self._started = self._updated = self._now()
        self._length = 0
        self.done = 0

    def _now(self) -> float:
        return self._clock.monotonic()

    @property
    def is_shown(self) -> bool:
        return self._shown

    def add(self, count: int, note: Callable[[], str] | None = None) -> None:
        """Adds to the count. Calls `note` only when it updates the line."""
        self.done += count
        now = self._now()
        if self._shown and now - self._updated >= _EVERY_SECONDS:
            self._updated = now
            self._write(self.line(now, note() if note is not None else ""))

    def line(self, now: float, note: str = "") -> str:
        passed = max(now - self._started, 1e-9)
        rate = self.done / passed
        parts = [f"{self.done:,} {self._what}", f"{rate:,.0f}/s"]
        if self._total:
            parts[0] = f"{self.done:,} of {self._total:,} {self._what}"
            parts.insert(0, f"{min(self.done / self._total, 1):.0%}")
            if rate > 0:
                parts.append(f"{in_time((self._total - self.done) / rate)} left")
        if note:
            parts.append(note)
        return " · ".join(parts)

    def _write(self, text: str) -> None:
        # A wrapped line cannot be overwritten.
        text = text[: max(shutil.get_terminal_size().columns - 1, 1)]
        previous_length, self._length = (
            self._length,
            max(self._length, len(text)),
        )  # set first: an interrupt may come at any moment
        sys.stderr.write("\r" + text.ljust(previous_length))
        sys.stderr.flush()
        self._length = len(text)

    def clear(self) -> None:
        """Erases the line so that something else can be printed."""
        if self._length:
            sys.stderr.write("\r" + " " * self._length + "\r")
            sys.stderr.flush()
            self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()


def in_parts(what: str, items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yields the items in chunks and shows progress. An interrupt takes effect between two chunks."""
    with Progress(what, len(items)) as progress:
        for start in range(0, len(items), size):
            part = items[start : start + size]
            yield part
            progress.add(len(part))


def in_time(seconds: float) -> str:
    """Formats a duration: 1 h 05 min."""
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    return f"{total // 3600} h {total % 3600 // 60:02d} min"
