"""Waiting for the executors of a cluster."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.pipelines.executors import count_executor_cores
from headrace.testing.clock import ManualClock


class FakeSpark:
    """A Spark application whose executors, with four cores each, register at these seconds after its start."""

    def __init__(
        self, clock: ManualClock, register_at: list[float], master: str = "spark://m:7077", **conf: str
    ) -> None:
        self._clock = clock
        self.startTime = clock.time_ms()
        self._register_at = register_at
        self.sparkContext = self
        self.master = master
        self._conf = {name.replace("_", "."): value for name, value in conf.items()}
        self._jsc = SimpleNamespace(sc=lambda: self)

    def getConf(self) -> Any:  # noqa: N802
        return SimpleNamespace(get=self._conf.get, contains=self._conf.__contains__)

    def _executors(self) -> int:
        return sum(self._clock.time_ms() >= self.startTime + seconds * 1000 for seconds in self._register_at)

    def getExecutorMemoryStatus(self) -> Any:  # noqa: N802
        return SimpleNamespace(size=lambda: 1 + self._executors())

    @property
    def defaultParallelism(self) -> int:  # noqa: N802
        return max(2, self._executors() * 4)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize(
    ("register_at", "cores", "waited"),
    [
        ([5, 5.5, 6], 12, 8),  # all executors that register within two seconds of each other
        ([0, 9], 4, 2),
        ([], 2, 30),
        ([29, 31, 32], 4, 30),
        ([float(number) for number in range(100)], 124, 30),
    ],
)
def test_waits_for_executors_of_a_new_cluster(
    clock: ManualClock, register_at: list[float], cores: int, waited: float
) -> None:
    spark: Any = FakeSpark(clock, register_at)
    assert count_executor_cores(spark, clock) == cores
    assert clock.time_ms() - spark.startTime == pytest.approx(waited * 1000, abs=300)


def test_does_not_wait_for_local_dynamic_or_old_clusters(clock: ManualClock) -> None:
    began_ms = clock.time_ms()
    for spark in (
        FakeSpark(clock, [1], "local[4]"),
        FakeSpark(clock, [1], "local"),
        FakeSpark(clock, [1], spark_default_parallelism="2"),
        FakeSpark(clock, [1], **{"spark.dynamicAllocation.enabled": "true"}),
    ):
        assert count_executor_cores(spark, clock) == 2  # type: ignore[arg-type]
    assert clock.time_ms() == began_ms
    running: Any = FakeSpark(clock, [1, 2])
    clock.advance(120_000)
    assert count_executor_cores(running, clock) == 8
    assert clock.time_ms() == began_ms + 120_000, "does not wait in an old application"
