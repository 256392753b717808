"""Measured rates and token buckets, as Kafka's metrics compute them, and the throttle times that follow. No clock.

A rate is the sum of the samples divided by the time that they cover. By default there are 11 samples of one second:

    sample      -10     -9     ...     -1     the current one
    rate        sum of all, divided by the time since the first one started, at least 10 s

A token bucket (KIP-599) gets `limit` tokens per second, up to what it gets in all samples together. A request may take
more tokens than there are. Then others are refused until the bucket is no longer negative. So bursts are allowed, and a
single large request is never refused forever.

Times are milliseconds of any clock that never goes back.
"""

from dataclasses import dataclass

UNLIMITED = float(2**63 - 1)


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """The number and length of samples (`quota.window.num`, `quota.window.size.seconds`)."""

    samples: int = 11
    sample_ms: int = 1000

    @property
    def total_ms(self) -> int:
        return self.samples * self.sample_ms


class Rate:
    """The rate of a quantity per second."""

    __slots__ = ("_current", "_last", "_starts", "_sums", "_windows")

    def __init__(self, windows: QuotaWindows):
        self._windows = windows
        self._current = 0
        # One entry per sample, in the order of a ring.
        self._starts: list[float] = []
        self._last: list[float] = []
        """When something was last recorded in a sample."""
        self._sums: list[float] = []

    def record(self, value: float, now_ms: float) -> None:
        """Adds a value. A negative one takes back a value that was recorded before."""
        if not self._starts:
            self._add_sample(now_ms)
        elif now_ms - self._starts[self._current] >= self._windows.sample_ms:
            # One sample more than the windows have: the oldest one reaches into the measured time until it expires.
            self._current = (self._current + 1) % (self._windows.samples + 1)
            if self._current == len(self._starts):
                self._add_sample(now_ms)
            else:
                self._reset(self._current, now_ms)
        self._sums[self._current] += value
        self._last[self._current] = now_ms

    def value(self, now_ms: float) -> float:
        """Returns the rate per second."""
        self._expire(now_ms)
        return sum(self._sums) / self.window_ms(now_ms) * 1000 if self._sums else 0.0

    def window_ms(self, now_ms: float) -> float:
        """Returns the time that the rate covers."""
        self._expire(now_ms)
        elapsed_ms = now_ms - min(self._starts, default=now_ms)
        missing = self._windows.samples - 1 - int(elapsed_ms // self._windows.sample_ms)
        # A window of one sample that has just begun has no length.
        return max(elapsed_ms + max(0, missing) * self._windows.sample_ms, 1)

    def _expire(self, now_ms: float) -> None:
        for index, last in enumerate(self._last):
            if now_ms - last >= self._windows.total_ms:
                self._reset(index, now_ms)

    def _add_sample(self, now_ms: float) -> None:
        self._starts.append(now_ms)
        self._last.append(now_ms)
        self._sums.append(0.0)

    def _reset(self, index: int, now_ms: float) -> None:
        self._starts[index] = self._last[index] = now_ms
        self._sums[index] = 0.0


class TokenBucket:
    """Tokens of a client, full at the start. Its content is negative after a large request."""

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: QuotaWindows):
        self._windows = windows
        self._tokens = float("inf")
        self._updated_ms = 0.0

    def tokens(self, limit: float, now_ms: float) -> float:
        """Returns the tokens that are left. `limit` tokens are added per second."""
        burst = limit * self._windows.total_ms / 1000
        self._tokens = min(burst, self._tokens + limit * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: float) -> None:
        self._tokens = self.tokens(limit, now_ms) - count


def rate_throttle_ms(rate: Rate, limit: float, now_ms: float, windows: QuotaWindows) -> int:
    """Returns how long a client has to pause until the rate is down to the limit; 0 if it is not above.

    With the rate R over a window W, the pause P follows from R * W / (W + P) = limit.
    """
    value = rate.value(now_ms)
    if value <= limit:
        return 0
    if limit <= 0:
        return windows.total_ms
    return _rounded((value - limit) / limit * rate.window_ms(now_ms))


def bucket_throttle_ms(bucket: TokenBucket, limit: float, now_ms: float, windows: QuotaWindows) -> int:
    """Returns how long it takes until the bucket is no longer negative."""
    tokens = bucket.tokens(limit, now_ms)
    if tokens >= 0:
        return 0
    return _rounded(-tokens / limit * 1000) if limit > 0 else windows.total_ms


def _rounded(milliseconds: float) -> int:
    """Rounds as Java does, within the throttle time field of responses."""
    return int(min(milliseconds + 0.5, 2**31 - 1))
