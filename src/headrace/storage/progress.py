"""Log lines that show the progress of starting and stopping with many partitions."""

import logging

from headrace.common.clock import Clock

_logger = logging.getLogger(__name__)

_FIRST_SECONDS = 1.0
_NEXT_SECONDS = 5.0


class Progress:
    """Counts finished items. Logs a line after a second, then every five seconds, and at the end if it took longer."""

    def __init__(self, clock: Clock, action: str, total: int, items: str = "logs"):
        """`action` starts the log line, as in "Loading /data"."""
        self._clock = clock
        self._action = action
        self._total = total
        self._items = items
        self._done = 0
        self._started = clock.monotonic()
        self._next_line = self._started + _FIRST_SECONDS

    def add(self, count: int = 1) -> None:
        """Notes that `count` more items are done."""
        self._done += count
        now = self._clock.monotonic()
        if now >= self._next_line:
            self._next_line = now + _NEXT_SECONDS
            _logger.info("%s: %d of %d %s", self._action, self._done, self._total, self._items)

    def finish(self) -> None:
        seconds = self._clock.monotonic() - self._started
        if seconds >= _FIRST_SECONDS:
            _logger.info("%s: %d %s in %.1f seconds", self._action, self._done, self._items, seconds)
