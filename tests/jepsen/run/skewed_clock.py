"""Runs a `headrace` command with a wrong clock: `python -m tests.jepsen.run.skewed_clock CLOCK_FILE server ...`.

The file has the offset in seconds; it is read at most twice a second. Only the time of day is wrong. Under libfaketime
0.9.10, Python's `time.sleep` fails: the library computes the deadline of `clock_nanosleep` wrongly.
"""

import sys
import time
from pathlib import Path

_READ_SECONDS = 0.5


class SkewedClock:
    def __init__(self, file: Path):
        self._file = file
        self._offset_ns = 0
        self._read_at = 0.0
        self._true_time_ns = time.time_ns

    def time_ns(self) -> int:
        now = time.monotonic()
        if now - self._read_at > _READ_SECONDS:
            self._read_at = now
            self._offset_ns = int(self._file.read_text().strip().rstrip("s")) * 1_000_000_000
        return self._true_time_ns() + self._offset_ns

    def time(self) -> float:
        return self.time_ns() / 1e9


def main() -> None:
    clock = SkewedClock(Path(sys.argv.pop(1)))
    time.time_ns = clock.time_ns
    time.time = clock.time
    from headrace.cli.main import main as headrace  # after the change: modules may import the functions

    headrace()


if __name__ == "__main__":
    main()
