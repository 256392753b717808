"""A progress line: updated in place on a terminal, printed line by line elsewhere.

Belongs to one thread.
"""

import shutil
from typing import IO

from headrace.common.clock import Clock, SystemClock

_TERMINAL_SECONDS = 0.1
_FILE_SECONDS = 5.0
_BAR = 24


class Progress:
    """Writes a line at most every 0.1 seconds on a terminal, and at most every 5 seconds elsewhere."""

    def __init__(self, out: IO[str], clock: Clock | None = None):
        self._out = out
        self._clock = clock or SystemClock()
        self._overwrites = out.isatty()
        self._next = 0.0
        self._is_open = False

    def is_due(self) -> bool:
        return self._clock.monotonic() >= self._next

    def show(self, line: str) -> None:
        """Shows a line that the next one replaces."""
        self._next = self._clock.monotonic() + (_TERMINAL_SECONDS if self._overwrites else _FILE_SECONDS)
        if self._overwrites:
            width = shutil.get_terminal_size().columns - 1
            self._out.write(f"\r{line[:width]:<{width}}")
            self._is_open = True
        else:
            self._out.write(f"{line}\n")
        self._out.flush()

    def end(self, line: str | None = None) -> None:
        """Ends the output with the last line, or with this one."""
        if line is not None:
            self.show(line)
        if self._is_open:
            self._out.write("\n")
            self._out.flush()
            self._is_open = False


def bar(share: float, width: int = _BAR) -> str:
    """Returns a bar of blocks that is filled to a share from 0 to 1."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, remainder = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[remainder] if remainder else "")).ljust(width, "░")


def rate_text(events: int, data_bytes: int, seconds: float) -> str:
    seconds = max(seconds, 1e-9)
    return f"{events / seconds:,.0f}/s  {data_bytes / seconds / 1e6:.1f} MB/s"


def time_text(seconds: float) -> str:
    """Returns minutes and seconds, for example 1:05."""
    total = max(0, round(seconds))
    return f"{total // 60}:{total % 60:02d}"
