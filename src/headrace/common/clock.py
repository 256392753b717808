"""The clock. Nothing outside `common` reads the system's clock, so that tests control time."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time in ms, and monotonic time in seconds for measuring durations."""

    def time_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The operating system's clock."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
