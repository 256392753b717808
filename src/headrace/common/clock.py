"""Time, passed in. Nothing outside `common` reads the machine's clock, so tests own time."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the system asks of time: wall time in ms, and a steady time in seconds for measuring durations."""

    def time_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
