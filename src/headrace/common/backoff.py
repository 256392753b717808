"""Exponential backoff with jitter, up to a limit.

    attempt   0       1       2       3       4          first=100, limit=1000
    wait      100     200     400     800     1000       each +- 20% at random (KIP-144, KIP-580)

The caller waits: this module only computes the times.
"""

from headrace.common.ids import Random

JITTER = 0.2
_LARGEST_EXPONENT = 62


class Backoff:
    """Computes backoff times. It has no state: the caller counts the failed attempts."""

    __slots__ = ("_random", "first_ms", "jitter", "limit_ms")

    def __init__(self, first_ms: float, limit_ms: float, random: Random, jitter: float = JITTER):
        self.first_ms = first_ms
        self.limit_ms = max(first_ms, limit_ms)
        self.jitter = jitter
        self._random = random

    def wait_ms(self, attempt: int) -> float:
        """Returns the backoff after failed attempt number `attempt`, counted from 0."""
        wait: float = min(self.first_ms * 2.0 ** min(max(attempt, 0), _LARGEST_EXPONENT), self.limit_ms)
        return wait * self._random.uniform(1.0 - self.jitter, 1.0 + self.jitter)

    def wait_seconds(self, attempt: int) -> float:
        return self.wait_ms(attempt) / 1000
