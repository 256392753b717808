"""Statistics of the performance tools: latency percentiles, rates over time, and text charts."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.common.ids import make_random

MEGABYTE = 1024 * 1024
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_MOST = 500_000
_RECENT = 1000
_BLOCK = 1 << 16
_SWEEP = 1 << 20


def letters(size: int) -> bytes:
    """Returns reproducible random letters. They repeat after 64 KB."""
    block = bytes(make_random(0).choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=min(size, _BLOCK)))
    return block if size <= _BLOCK else (block * (size // _BLOCK + 1))[:size]


class Latencies:
    """Latencies in milliseconds. Keeps at most half a million samples by dropping every second one."""

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._stride, self._seen = 1, 0
        self.count = 0
        self.total = self.largest = 0.0

    def add(self, milliseconds: float) -> None:
        self.count += 1
        self.total += milliseconds
        self.largest = max(self.largest, milliseconds)
        self._seen += 1
        if self._seen >= self._stride:
            self._seen = 0
            self._kept.append(milliseconds)
            if len(self._kept) >= _MOST:
                self._kept = self._kept[::2]
                self._stride *= 2

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def percentiles(self, *shares: float) -> list[float]:
        """Returns percentiles as Kafka's tools compute them: the value at index share * count."""
        ordered = sorted(self._kept)
        if not ordered:
            return [0.0 for _ in shares]
        return [ordered[min(int(share * len(ordered)), len(ordered) - 1)] for share in shares]

    def recent(self) -> str:
        """Returns percentiles of recent samples for the progress line."""
        latest = sorted(self._kept[-_RECENT:])
        if not latest:
            return ""
        p50, p99 = latest[len(latest) // 2], latest[min(int(0.99 * len(latest)), len(latest) - 1)]
        return f"p50 {p50:.0f} p99 {p99:.0f} ms"

    def histogram(self, buckets: int = 12) -> list[tuple[float, float, int]]:
        """Returns (from, to, count) for buckets of exponentially growing width."""
        ordered = sorted(self._kept)
        if not ordered:
            return []
        smallest, largest = max(ordered[0], 0.01), max(ordered[-1], 0.011)
        factor = max((largest / smallest) ** (1 / buckets), 1.05)
        counted: list[tuple[float, float, int]] = []
        index, start = 0, smallest
        while index < len(ordered):
            end = start * factor
            begin = index
            while index < len(ordered) and (ordered[index] < end or len(counted) == buckets - 1):
                index += 1
            counted.append((start, end if index < len(ordered) else largest, index - begin))
            start = end
        return counted


class DeliveryCounts:
    """Counts acknowledged and failed records, and keeps the first error.

    The sending thread checks the futures now and then. Callbacks on the producer's thread would slow the producer down.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Any, int, bool]] = deque()
        self._sweep_at = _SWEEP
        self.records, self.bytes = [0, 0], [0, 0]
        self.failed = 0
        self.error: BaseException | None = None

    def add(self, future: Any, size: int, marked: bool = False) -> None:
        """Adds a record of `size` bytes. Marked records are counted separately in `records[True]`."""
        self._waiting.append((future, size, marked))

    def check(self) -> None:
        waiting, records, sizes = self._waiting, self.records, self.bytes
        while waiting and waiting[0][0].is_done:
            future, size, marked = waiting.popleft()
            if future.exception is None:
                records[marked] += 1
                sizes[marked] += size
            else:
                self._count(future, size, marked)
        if len(waiting) > self._sweep_at:  # a slow record at the front hides completed ones behind it
            self.check_all()
            self._sweep_at = 2 * len(waiting) + _SWEEP

    def check_all(self) -> None:
        for _ in range(len(self._waiting)):
            entry = self._waiting.popleft()
            if entry[0].is_done:
                self._count(*entry)
            else:
                self._waiting.append(entry)

    def _count(self, future: Any, size: int, marked: bool) -> None:
        error = future.exception
        if error is None:
            self.records[marked] += 1
            self.bytes[marked] += size
            return
        if self.error is None:
            self.error = error
        self.failed += 1


@dataclass
class Series:
    """Counts per second."""

    counts: list[int] = field(default_factory=list)

    def add(self, second: int, count: int) -> None:
        while len(self.counts) <= second:
            self.counts.append(0)
        self.counts[second] += count


def spark_line(values: Sequence[float], width: int = 60) -> str:
    """Draws values over time as one line of block characters."""
    if not values:
        return ""
    if len(values) > width:
        step = len(values) / width
        values = [
            sum(part) / len(part)
            for column in range(width)
            if (part := values[int(column * step) : max(int((column + 1) * step), int(column * step) + 1)])
        ]
    top = max(values) or 1
    return "".join(_EIGHTHS[min(8, max(0, round(value / top * 8)))] for value in values)


def bar_lines(latencies: Latencies, width: int = 40) -> list[str]:
    """Draws a latency histogram, one line per bucket."""
    buckets = latencies.histogram()
    largest = max((count for _, _, count in buckets), default=1) or 1
    total = sum(count for _, _, count in buckets) or 1
    return [
        f"{start:>9.2f} to {end:>9.2f} ms  {'█' * max(round(count / largest * width), 1 if count else 0):<{width}} "
        f"{count / total:6.1%}"
        for start, end, count in buckets
    ]
