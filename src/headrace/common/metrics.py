"""Counters, gauges, histograms and meters, and their registry.

- Updates are cheap: a counter adds to an attribute, a histogram increments one value in a dict, in compiled code.
  Percentiles, rates and texts are computed when they are read.
- There are no locks. One thread owns a registry, and updates and reads its metrics; in a broker, the event loop's.
- Names and labels follow Prometheus: `requests_total{api="FETCH"}`, durations in seconds, sizes in bytes.
"""

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from headrace.common._histogram import HistogramValues
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import HeadraceError

_logger = logging.getLogger(__name__)

Sample = float | dict[str, float]
Labels = tuple[tuple[str, str], ...]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}


class Counter:
    """A count that only increases. Hot code adds to `value` directly."""

    __slots__ = ("value",)
    kind = "counter"

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        self.value += amount

    def sample(self) -> Sample:
        return self.value


class Gauge:
    """A current value, either set or computed by a function."""

    __slots__ = ("_function", "_value")
    kind = "gauge"

    def __init__(self, function: Callable[[], float] | None = None):
        self._function = function
        self._value = 0.0

    @property
    def value(self) -> float:
        return self._value if self._function is None else self._function()

    def set(self, value: float) -> None:
        if self._function is not None:
            raise HeadraceError("This gauge is computed by a function and cannot be set")
        self._value = value

    def sample(self) -> Sample:
        return self.value


class Histogram(HistogramValues):
    """The distribution of values, in buckets whose size grows with the value.

    Each power of two has eight buckets, so the error of a percentile is at most 1/16 at any scale:

        [1, 2)  ->  1.000 | 1.125 | 1.25 | 1.375 | 1.5 | 1.625 | 1.75 | 1.875        [2, 4)  ->  2.00 | 2.25 | ...

    `record` is compiled.
    """

    __slots__ = ()
    kind = "histogram"

    def percentile(self, percent: float, since: Mapping[int, int] | None = None) -> float:
        """Returns the percentile, with the precision of the buckets; 0 without values.

        With `since`, an earlier copy of `buckets`, it is that of the values recorded after the copy.
        """
        buckets = self.buckets
        if since is not None:
            buckets = {bucket: more for bucket, count in buckets.items() if (more := count - since.get(bucket, 0))}
        count = sum(buckets.values())
        if not count:
            return 0.0
        rank = max(1, math.ceil(count * percent / 100))
        cumulative_count = 0
        for bucket in sorted(buckets):
            cumulative_count += buckets[bucket]
            if cumulative_count >= rank:
                return min(max(self._middle(bucket), self.smallest), self.largest)
        return self.largest

    def _middle(self, bucket: int) -> float:
        if bucket == self.ZERO_BUCKET:
            return min(0.0, self.smallest)
        exponent, eighth = divmod(bucket, 8)
        return math.ldexp((eighth + 8.5) / 16, exponent)

    def sample(self) -> Sample:
        summary = {"count": float(self.count), "sum": self.total}
        if self.count:
            summary |= {"mean": self.total / self.count, "min": self.smallest, "max": self.largest}
        return summary | {name: self.percentile(percent) for name, percent in _PERCENTILES.items()}


class Meter:
    """A count, and its rate per second over the last 1, 5 and 15 minutes.

    The rates are exponentially weighted averages. They are updated when they are read, so `mark` reads no clock.
    """

    __slots__ = ("_clock", "_count_then", "_rates", "_started", "_then", "count")
    kind = "meter"
    MINUTES = (1, 5, 15)

    def __init__(self, clock: Clock):
        self.count = 0
        self._clock = clock
        self._started = self._then = clock.monotonic()
        self._count_then = 0
        self._rates = [0.0 for _ in self.MINUTES]

    def mark(self, amount: int = 1) -> None:
        self.count += amount

    def rate(self, minutes: int = 1) -> float:
        self._update()
        return self._rates[self.MINUTES.index(minutes)]

    def _update(self) -> None:
        now = self._clock.monotonic()
        elapsed = now - self._then
        if elapsed <= 0:
            return
        latest_rate = (self.count - self._count_then) / elapsed
        is_first_update = self._then == self._started
        for index, minutes in enumerate(self.MINUTES):
            # The first average has no previous value to be weighted against.
            weight = 1.0 if is_first_update else 1 - math.exp(-elapsed / (60 * minutes))
            self._rates[index] += weight * (latest_rate - self._rates[index])
        self._then, self._count_then = now, self.count

    def sample(self) -> Sample:
        self._update()
        rates = {f"rate_{minutes}m": rate for minutes, rate in zip(self.MINUTES, self._rates, strict=True)}
        return {"count": float(self.count), **rates}


Metric = Counter | Gauge | Histogram | Meter
M = TypeVar("M", Counter, Gauge, Histogram, Meter)


class Metrics:
    """The metrics of one process or broker, by name and labels. The same name and labels return the same metric."""

    def __init__(self, clock: Clock | None = None):
        self._clock = clock or SystemClock()
        self._kinds: dict[str, type[Metric]] = {}
        self._metrics: dict[tuple[str, Labels], Metric] = {}

    def counter(self, name: str, **labels: str) -> Counter:
        return self._get(Counter, name, labels, Counter)

    def gauge(self, name: str, function: Callable[[], float] | None = None, /, **labels: str) -> Gauge:
        """Returns a gauge. If a function is passed, it replaces an existing gauge of this name."""
        if function is not None:
            self.remove(name, **labels)
        return self._get(Gauge, name, labels, lambda: Gauge(function))

    def histogram(self, name: str, **labels: str) -> Histogram:
        return self._get(Histogram, name, labels, Histogram)

    def meter(self, name: str, **labels: str) -> Meter:
        return self._get(Meter, name, labels, lambda: Meter(self._clock))

    def _get(self, kind: type[M], name: str, labels: dict[str, str], create_metric: Callable[[], M]) -> M:
        key = name, tuple(sorted((label, str(value)) for label, value in labels.items()))
        registered_kind = self._kinds.get(name)
        if registered_kind is not None and registered_kind is not kind:
            raise HeadraceError(f"Metric {name} is a {registered_kind.kind} and cannot also be a {kind.kind}")
        metric = self._metrics.get(key)
        if metric is None:
            if not _NAME.fullmatch(name) or not all(map(_LABEL.fullmatch, labels)):
                raise HeadraceError(f"Invalid metric name {name} with labels {sorted(labels)}")
            metric = self._metrics[key] = create_metric()
            self._kinds[name] = kind
        assert isinstance(metric, kind)
        return metric

    def remove(self, name: str, **labels: str) -> None:
        """Removes a metric, for example when its topic is deleted."""
        self._metrics.pop((name, tuple(sorted((label, str(value)) for label, value in labels.items()))), None)

    def __iter__(self) -> Iterator[tuple[str, Labels, Metric]]:
        """Yields name, labels and metric, sorted."""
        for (name, labels), metric in sorted(self._metrics.items(), key=lambda item: item[0]):
            yield name, labels, metric

    def snapshot(self) -> dict[str, Sample]:
        """Returns the current values by full name. A gauge whose function fails has the value nan."""
        samples: dict[str, Sample] = {}
        for name, labels, metric in self:
            try:
                samples[full_name(name, labels)] = metric.sample()
            except Exception:
                _logger.exception("Cannot read metric %s; reporting nan", full_name(name, labels))
                samples[full_name(name, labels)] = math.nan
        return samples


def full_name(name: str, labels: Labels) -> str:
    """Returns a name with labels: `requests_total{api="FETCH"}`."""
    if not labels:
        return name
    label_list = ",".join(f'{label}="{_escape(value)}"' for label, value in labels)
    return f"{name}{{{label_list}}}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
