"""Replication throttles: the rate of bytes that a broker sends to, or fetches as, replicas that are not in sync.

A reassignment copies whole partitions. So that it leaves bandwidth to clients, an operator lists the moving replicas in
the topic configs `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas`, and limits
their rate with the broker configs `leader.replication.throttled.rate` and `follower.replication.throttled.rate`
(KIP-73).

The rate is measured in samples, by default 11 of one second (`replication.quota.window.*`). While it exceeds the limit,
throttled replicas that are not in sync get no records. All bytes of throttled replicas count, also of those in sync.

    sample         1 s    2 s    ...    10 s    the current one
    rate           all bytes in the samples, divided by the time since the first one, at least 10 s
"""

from collections import deque
from collections.abc import Callable

from headrace.common.clock import Clock
from headrace.common.types import TopicPartition

_ALL = ("*",)
UNLIMITED = 2**63 - 1


def is_listed(replicas: tuple[str, ...], partition: int, broker_id: int) -> bool:
    """Returns True if a list such as `0:101,1:102`, or `*`, contains a replica."""
    return replicas == _ALL or f"{partition}:{broker_id}" in replicas


class ReplicationQuota:
    """The throttle of a broker as leader, or as follower. Owned by the broker's loop."""

    def __init__(
        self,
        clock: Clock,
        limit: Callable[[], int],
        is_throttled: Callable[[TopicPartition], bool],
        samples: int = 11,
        sample_seconds: float = 1.0,
    ):
        """`limit` returns the rate in bytes per second."""
        self._clock = clock
        self._limit = limit
        self._max_samples = samples
        self._sample_seconds = sample_seconds
        self.is_throttled = is_throttled
        """Returns True if the replica of a partition on this broker is in the list of throttled replicas."""
        self._samples: deque[list[float]] = deque()
        """Start and bytes of each sample, the oldest one first."""

    @property
    def is_exceeded(self) -> bool:
        limit = self._limit()
        return limit < UNLIMITED and self.rate() > limit

    def rate(self) -> float:
        """Returns the measured rate in bytes per second."""
        now = self._clock.monotonic()
        self._drop_old(now)
        if not self._samples:
            return 0.0
        seconds = max(now - self._samples[0][0], max(1, self._max_samples - 1) * self._sample_seconds)
        return sum(size for _, size in self._samples) / seconds

    def record(self, size: int) -> None:
        """Counts bytes of a throttled replica."""
        if self._limit() >= UNLIMITED:
            return
        now = self._clock.monotonic()
        self._drop_old(now)
        if not self._samples or now - self._samples[-1][0] >= self._sample_seconds:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += size

    def _drop_old(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= self._max_samples * self._sample_seconds:
            self._samples.popleft()
