"""Rates and token buckets, against a slow reference of Kafka's samples."""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.broker.quotas.rates import (
    QuotaWindows,
    Rate,
    TokenBucket,
    bucket_throttle_ms,
    rate_throttle_ms,
)

KAFKA = QuotaWindows()


@dataclass
class Sample:
    start: float
    last: float
    total: float = 0.0


@dataclass
class Reference:
    """Kafka's Rate over a SampledStat, written for clarity: a ring of samples, which are purged before each use."""

    windows: QuotaWindows
    samples: list[Sample] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now: float) -> None:
        if not self.samples:
            self.samples.append(Sample(now, now))
        if now - self.samples[self.current].start >= self.windows.sample_ms:
            self.current = (self.current + 1) % (self.windows.samples + 1)
            if self.current >= len(self.samples):
                self.samples.append(Sample(now, now))
            else:
                self.samples[self.current] = Sample(now, now)
        self.samples[self.current].total += value
        self.samples[self.current].last = now

    def purge(self, now: float) -> None:
        expiry = self.windows.samples * self.windows.sample_ms
        self.samples = [Sample(now, now) if now - each.last >= expiry else each for each in self.samples]

    def window_ms(self, now: float) -> float:
        self.purge(now)
        elapsed = now - min(each.start for each in self.samples)
        full, least = int(elapsed / self.windows.sample_ms), self.windows.samples - 1
        return max(elapsed + max(0, least - full) * self.windows.sample_ms, 1)

    def rate(self, now: float) -> float:
        self.purge(now)
        return sum(each.total for each in self.samples) / self.window_ms(now) * 1000


steps = st.lists(st.tuples(st.integers(0, 15_000), st.integers(-50, 10_000), st.booleans()), min_size=1, max_size=30)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(steps, st.integers(1, 12), st.sampled_from([500, 1000, 2000]))
def test_rate_is_that_of_the_reference(steps: list[tuple[int, int, bool]], samples: int, sample_ms: int) -> None:
    windows = QuotaWindows(samples, sample_ms)
    rate, reference = Rate(windows), Reference(windows)
    now = 1_000_000.0
    for wait, value, measures in steps:
        now += wait
        rate.record(value, now)
        reference.record(value, now)
        if measures:
            assert rate.value(now) == pytest.approx(reference.rate(now))
            assert rate.window_ms(now) == pytest.approx(reference.window_ms(now))


def test_a_rate_without_history_covers_ten_windows() -> None:
    rate = Rate(KAFKA)
    assert rate.value(5.0) == 0
    rate.record(20_000, 5.0)
    assert rate.value(5.0) == 2000
    assert rate_throttle_ms(rate, 1000, 5.0, KAFKA) == 10_000
    assert rate_throttle_ms(rate, 2000, 5.0, KAFKA) == 0
    assert rate_throttle_ms(rate, 0, 5.0, KAFKA) == 11_000


def test_values_are_taken_back() -> None:
    rate = Rate(KAFKA)
    rate.record(20_000, 0.0)
    rate.record(-20_000, 0.0)
    assert rate.value(0.0) == 0


def test_bucket_allows_bursts_and_one_large_request() -> None:
    bucket = TokenBucket(KAFKA)
    assert bucket.tokens(10, 0.0) == 110
    bucket.take(500, 10, 0.0)
    assert bucket_throttle_ms(bucket, 10, 0.0, KAFKA) == 39_000
    assert bucket_throttle_ms(bucket, 10, 38_000.0, KAFKA) == 1000
    assert bucket_throttle_ms(bucket, 10, 39_000.0, KAFKA) == 0
    assert bucket.tokens(10, 1_000_000.0) == 110


def test_bucket_without_rate() -> None:
    bucket = TokenBucket(KAFKA)
    assert bucket_throttle_ms(bucket, 0, 0.0, KAFKA) == 0
    bucket.take(1, 0, 0.0)
    assert bucket_throttle_ms(bucket, 0, 0.0, KAFKA) == 11_000
