"""Time series of a cluster, in memory and in the console's topic, so that they survive a restart.

A series has two rings of 32-bit floats, indexed by absolute time:

    recent      the last 15 minutes in steps of 10 s
    long        the last 24 hours (configurable), in the step of its kind: 10 s for the cluster, 5 minutes for a topic

A ring's slot is the number of the step since the epoch, modulo the ring's size. NaN stands for unknown. In the topic, a
record is a chunk of the long ring:

    key     history/<series>/<number of the chunk modulo their number>
    value   first step (8 bytes) | length of a step in s (4) | values (4 each), little-endian

Compaction keeps the last record of each key, so the topic does not grow beyond the history. Owner: the loop.
"""

import math
import struct
import sys
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from headrace.common.clock import Clock

__all__ = ["PREFIX", "UNITS", "History", "Points", "Series"]

PREFIX = "history/"
UNITS = {
    "messages_in": "1/s",
    "bytes_in": "B/s",
    "bytes_out": "B/s",
    "under_replicated": "partitions",
    "topic.messages_in": "1/s",
    "topic.size_bytes": "B",
    "group.lag": "records",
    "group.lag_seconds": "s",
    "group.consumed": "1/s",
    "broker.bytes_in": "B/s",
    "broker.bytes_out": "B/s",
    "broker.size_bytes": "B",
}
"""The kinds of series. The name of a series is its kind, or `kind:name`."""
_STEPS = {"topic": 300, "group": 240, "broker": 30}
_CLUSTER_STEP = 10
_RECENT_STEP = 10
_RECENT_SLOTS = 90
_CHUNK = 60
_FLUSH_SECONDS = 300.0
_MAX_SERIES = 30_000
_HEAD = struct.Struct("<qI")
_NAN = math.nan

Put = Callable[[str, bytes | None], Awaitable[None]]


class _Ring:
    """Values by step. The ring covers the steps up to `last`, both ends included."""

    __slots__ = ("count", "last", "step", "values")

    def __init__(self, step: int, slots: int):
        self.step = step
        self.values = array("f", [_NAN]) * slots
        self.last = -1
        self.count = 0
        """The values in the last step so far."""

    def record(self, seconds: float, value: float) -> None:
        number = int(seconds // self.step)
        if number < self.last:
            return  # the clock was set back
        self._advance(number)
        slot = number % len(self.values)
        self.count += 1
        before = self.values[slot]
        self.values[slot] = value if before != before else before + (value - before) / self.count

    def _advance(self, number: int) -> None:
        if number == self.last:
            return
        size = len(self.values)
        if self.last < 0 or number - self.last >= size:
            self.values = array("f", [_NAN]) * size
        else:
            for missed in range(self.last + 1, number + 1):
                self.values[missed % size] = _NAN
        self.last = number
        self.count = 0

    def at(self, number: int) -> float:
        """Returns the value of a step, or NaN."""
        if number > self.last or number <= self.last - len(self.values):
            return _NAN
        return self.values[number % len(self.values)]

    def mean(self, start: float, end: float) -> float:
        """Returns the mean of the steps that begin in a period, or the step in which a short period begins."""
        first = int(start // self.step)
        last = max(first, math.ceil(end / self.step) - 1)
        total, count = 0.0, 0
        for number in range(max(first, self.last - len(self.values) + 1), min(last, self.last) + 1):
            value = self.values[number % len(self.values)]
            if value == value:
                total += value
                count += 1
        return total / count if count else _NAN

    def restore(self, first: int, values: Sequence[float]) -> None:
        """Fills in values of an earlier run, where nothing newer is known."""
        end = first + len(values) - 1
        if end > self.last:
            known = {number: self.at(number) for number in range(self.last - len(self.values) + 1, self.last + 1)}
            count = self.count
            self._advance(end)
            for number, value in known.items():
                if number > end - len(self.values) and value == value:
                    self.values[number % len(self.values)] = value
            self.count = count if end == self.last else 1
        for number, value in enumerate(values, first):
            if number > self.last - len(self.values) and self.at(number) != self.at(number):
                self.values[number % len(self.values)] = value


class Series:
    """One series."""

    __slots__ = ("flush_at", "flushed", "long", "recent")

    def __init__(self, step: int, slots: int):
        self.recent = _Ring(_RECENT_STEP, _RECENT_SLOTS)
        self.long = _Ring(step, slots)
        self.flushed = -1
        """The last step that the topic has completely."""
        self.flush_at = 0.0

    def record(self, seconds: float, value: float) -> None:
        self.recent.record(seconds, value)
        self.long.record(seconds, value)

    def mean(self, start: float, end: float) -> float:
        value = self.recent.mean(start, end)
        return value if value == value else self.long.mean(start, end)


@dataclass(frozen=True)
class Points:
    """Some series with common times. NaN stands for unknown."""

    times_ms: list[int]
    values: dict[str, list[float]]


class History:
    """All series of a cluster."""

    def __init__(self, clock: Clock, hours: float):
        self._clock = clock
        self._seconds = hours * 3600
        self._series: dict[str, Series] = {}

    def __len__(self) -> int:
        return len(self._series)

    def __contains__(self, name: str) -> bool:
        return name in self._series

    def record(self, name: str, value: float | None) -> None:
        """Notes the value of a series now. None is not noted: the series has a gap."""
        if value is None or value != value:
            return
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= _MAX_SERIES:
                return
            series = self._series[name] = self._new(name)
        series.record(self._clock.time_ms() / 1000, value)

    def forget(self, names: Iterable[str]) -> None:
        """Removes series, as of deleted topics."""
        for name in names:
            self._series.pop(name, None)

    def names(self) -> list[str]:
        return list(self._series)

    def _new(self, name: str) -> Series:
        step = _STEPS.get(name.partition(".")[0] if "." in name.partition(":")[0] else "", _CLUSTER_STEP)
        slots = max(2 * _CHUNK, math.ceil(self._seconds / step / _CHUNK) * _CHUNK)
        return Series(step, slots)

    # ---- reading

    def points(self, names: Iterable[str], from_ms: int, to_ms: int, count: int) -> Points:
        """Returns series between two times, in at most *count* points."""
        start, end = from_ms / 1000, to_ms / 1000
        step = max(_RECENT_STEP, math.ceil((end - start) / count))
        first = math.floor(start / step) * step
        times = [first + index * step for index in range(max(1, math.ceil((end - first) / step)))][: count + 1]
        values = {}
        for name in names:
            series = self._series.get(name)
            values[name] = [_NAN] * len(times) if series is None else [series.mean(time, time + step) for time in times]
        return Points([int(time * 1000) for time in times], values)

    # ---- the topic

    def restored(self, key: str, value: bytes | None) -> None:
        """Takes a record of the topic."""
        name, _, _ = key.removeprefix(PREFIX).rpartition("/")
        if not name or value is None or len(value) < _HEAD.size or (len(value) - _HEAD.size) % 4:
            return
        first, step = _HEAD.unpack_from(value)
        values = array("f", value[_HEAD.size :])
        if sys.byteorder == "big":
            values.byteswap()
        now = self._clock.time_ms() / 1000
        if name.partition(":")[0] not in UNITS or (first + len(values)) * step < now - self._seconds or first < 0:
            return
        if first * step > now + 3600:
            return  # written by a machine whose clock is ahead
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= _MAX_SERIES:
                return
            series = self._series[name] = self._new(name)
        if series.long.step == step and len(values) <= len(series.long.values):
            series.long.restore(first, values)

    async def flush(self, put: Put, *, everything: bool = False) -> int:
        """Writes the chunks that are due. Returns their number."""
        now = self._clock.monotonic()
        written = 0
        for name, series in list(self._series.items()):
            ring = series.long
            if ring.last < 0 or (now < series.flush_at and not everything):
                continue
            first_time = series.flush_at == 0.0 and not everything
            series.flush_at = now + max(_FLUSH_SECONDS, 6 * ring.step)
            if first_time:
                continue
            chunks = len(ring.values) // _CHUNK
            oldest = max(series.flushed + 1, ring.last - len(ring.values) + 1, 0)
            for chunk in range(oldest // _CHUNK, ring.last // _CHUNK + 1):
                values = array("f", [ring.at(number) for number in range(chunk * _CHUNK, (chunk + 1) * _CHUNK)])
                if all(value != value for value in values):
                    continue
                if sys.byteorder == "big":
                    values.byteswap()
                head = _HEAD.pack(chunk * _CHUNK, ring.step)
                await put(f"{PREFIX}{name}/{chunk % chunks}", head + values.tobytes())
                written += 1
            series.flushed = ring.last - 1
        return written
