"""Replication throttles: lists of replicas, and the measured rate."""

import pytest

from headrace.broker.replication.throttle import UNLIMITED, ReplicationQuota, is_listed
from headrace.testing.clock import ManualClock


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [((), False), (("*",), True), (("3:1", "4:1"), True), (("3:2",), False), (("4:1",), False), (("13:1",), False)],
)
def test_lists(replicas: tuple[str, ...], expected: bool) -> None:
    assert is_listed(replicas, partition=3, broker_id=1) is expected


class TestRate:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    def quota(self, clock: ManualClock, limit: int = 1000) -> ReplicationQuota:
        return ReplicationQuota(clock, lambda: limit, lambda _: True)

    def test_burst_within_the_window(self, clock: ManualClock) -> None:
        quota = self.quota(clock)
        quota.record(10_000)
        assert not quota.is_exceeded
        quota.record(1)
        assert quota.is_exceeded

    def test_recovers(self, clock: ManualClock) -> None:
        quota = self.quota(clock)
        quota.record(20_000)
        clock.advance(10_500)
        assert quota.is_exceeded
        clock.advance(500)
        assert not quota.is_exceeded
        assert quota.rate() == 0

    def test_steady_rate(self, clock: ManualClock) -> None:
        quota = self.quota(clock)
        for _ in range(60):
            quota.record(500)
            clock.advance(500)
        assert quota.rate() == pytest.approx(1000, rel=0.1)

    def test_other_windows(self, clock: ManualClock) -> None:
        quota = ReplicationQuota(clock, lambda: 1000, lambda _: True, 3, 2)
        quota.record(4_000)
        assert quota.rate() == 1000
        clock.advance(5_999)
        assert quota.rate() > 0
        clock.advance(1)
        assert quota.rate() == 0

    def test_unlimited(self, clock: ManualClock) -> None:
        quota = self.quota(clock, UNLIMITED)
        quota.record(1 << 60)
        assert not quota.is_exceeded
        assert quota.rate() == 0
