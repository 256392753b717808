"""The figures of a run in progress: rates, lag and latency, from samples of three counters.

Events are processed in the order in which they are sent, so event n is done when n events are done. Its latency is the
time from then back to when n events were sent. The audit measures latency exactly, from timestamps, when the run is
over.

Belongs to one thread. Pure Python, no I/O.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_WINDOW_SECONDS = 5.0
"""Rates and latencies are those of the last seconds."""
_POINTS = 10
"""The number of events that stand for all events of a sample."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters at a moment: events sent, events processed, and rows written for them."""

    seconds: float
    sent: int
    done: int
    rows: int

    @property
    def lag(self) -> int:
        return max(0, self.sent - self.done)


@dataclass(frozen=True)
class Latencies:
    """The latency of recent events, in seconds."""

    p50: float
    p99: float


@dataclass
class PerSecond:
    """The figures of every second: its start in milliseconds, events sent and done in it, the lag at its end, and the
    median latency in seconds."""

    times_ms: list[int] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    lag: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)


class LiveFigures:
    """The samples of a run, in the order of time."""

    def __init__(self) -> None:
        self.samples: list[Sample] = [Sample(0.0, 0, 0, 0)]

    def add(self, seconds: float, sent: int, done: int, rows: int) -> None:
        self.samples.append(Sample(seconds, sent, done, rows))

    @property
    def last(self) -> Sample:
        return self.samples[-1]

    def rates(self) -> tuple[float, float]:
        """Returns events sent per second, and rows written per second."""
        first = self._window()[0]
        seconds = self.last.seconds - first.seconds
        if seconds <= 0:
            return 0.0, 0.0
        return (self.last.sent - first.sent) / seconds, (self.last.rows - first.rows) / seconds

    def latencies(self) -> Latencies | None:
        """Returns the latency of events that were completed in the last seconds, or None if there are none."""
        return _percentiles(self._times(self._window()))

    def per_second(self) -> "PerSecond":
        """Returns the figures of every second."""
        seconds = range(int(self.last.seconds) + 1)
        found = PerSecond()
        latency = 0.0
        for second, (first, last) in enumerate(pairwise(self._at(edge) for edge in (*seconds, len(seconds)))):
            latencies = _percentiles(self._times(self.samples[first : last + 1]))
            latency = latencies.p50 if latencies is not None else latency
            before, after = self.samples[first], self.samples[last]
            found.times_ms.append(second * 1000)
            found.sent.append(after.sent - before.sent)
            found.done.append(after.done - before.done)
            found.lag.append(after.lag)
            found.latency.append(latency)
        return found

    def _at(self, seconds: float) -> int:
        """Returns the index of the last sample up to a time."""
        return max(0, bisect_left(self.samples, seconds + 1e-9, key=lambda sample: sample.seconds) - 1)

    def _window(self) -> list[Sample]:
        return self.samples[self._at(self.last.seconds - _WINDOW_SECONDS) :]

    def _times(self, samples: Sequence[Sample]) -> list[float]:
        """Returns the latencies of some of the events that were completed between the first and the last sample, evenly
        distributed over the events."""
        times = []
        total = samples[-1].done - samples[0].done
        for before, after in pairwise(samples):
            count = after.done - before.done
            if count > 0:
                points = max(1, round(_POINTS * len(samples) * count / total))
                events = [before.done + count * (point + 0.5) / points for point in range(points)]
                times += [max(0.0, after.seconds - self._sent_at(event)) for event in events]
        return times

    def _sent_at(self, event: float) -> float:
        """Returns when a number of events had been sent."""
        index = bisect_left(self.samples, event, key=lambda sample: sample.sent)
        if index == len(self.samples):
            return self.last.seconds
        before, after = self.samples[max(0, index - 1)], self.samples[index]
        if after.sent == before.sent:
            return after.seconds
        return before.seconds + (after.seconds - before.seconds) * (event - before.sent) / (after.sent - before.sent)


def _percentiles(times: list[float]) -> Latencies | None:
    if not times:
        return None
    times = sorted(times)
    return Latencies(times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)])
