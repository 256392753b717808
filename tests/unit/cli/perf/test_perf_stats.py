import pytest

from headrace.cli.perf import perf_stats
from headrace.cli.perf.perf_stats import DeliveryCounts, Latencies, Series, bar_lines, letters, spark_line


def latencies(*values: float) -> Latencies:
    found = Latencies()
    for value in values:
        found.add(value)
    return found


def test_percentiles() -> None:
    found = latencies(*map(float, range(1, 101)))
    assert found.percentiles(0.5, 0.99, 0.999) == [51, 100, 100]
    assert (found.mean, found.largest, found.count) == (50.5, 100, 100)
    assert Latencies().percentiles(0.5) == [0]


def test_latencies_are_downsampled_evenly() -> None:
    found = latencies(*(float(number % 1000) for number in range(1_000_000)))
    assert found.count == 1_000_000
    assert len(found._kept) < 500_000
    assert found.percentiles(0.5)[0] == pytest.approx(500, abs=5)


def test_histogram_counts_all_latencies() -> None:
    found = latencies(*(1.5**number for number in range(20)))
    bars = found.histogram()
    assert sum(count for _, _, count in bars) == 20
    assert len(bars) <= 12
    assert all(low < high for low, high, _ in bars)
    assert len(bar_lines(found)) == len(bars)
    assert sum(count for _, _, count in latencies(3.0).histogram()) == 1
    assert bar_lines(Latencies()) == []


def test_spark_line() -> None:
    assert spark_line([0, 4, 8]) == " ▄█"
    assert len(spark_line(list(range(1000)), 60)) == 60
    assert spark_line([]) == ""
    series = Series()
    series.add(2, 5)
    assert series.counts == [0, 0, 5]


def test_recent_latencies() -> None:
    latencies = Latencies()
    assert latencies.recent() == ""
    for number in range(2000):
        latencies.add(number)
    assert latencies.recent() == "p50 1500 p99 1990 ms"


class _Future:
    def __init__(self) -> None:
        self.is_done = False
        self.exception: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        self.is_done, self.exception = True, error


def test_counts_only_acknowledged_records() -> None:
    outcomes = DeliveryCounts()
    futures = [_Future() for _ in range(4)]
    for number, future in enumerate(futures):
        outcomes.add(future, 10, marked=number > 1)
    outcomes.check()
    assert outcomes.records == [0, 0]
    futures[0].end()
    futures[2].end()
    outcomes.check()
    assert (outcomes.records, outcomes.bytes) == ([1, 0], [10, 0])  # the second keeps the third back
    error = ValueError("first")
    futures[1].end(error)
    futures[3].end(ValueError("second"))
    outcomes.check_all()
    assert (outcomes.records, outcomes.bytes) == ([1, 1], [10, 10])
    assert (outcomes.failed, outcomes.error) == (2, error)


def test_slow_record_does_not_hold_others_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_stats, "_SWEEP", 8)
    outcomes = DeliveryCounts()
    outcomes.add(_Future(), 1)
    for _ in range(100):
        done = _Future()
        done.end()
        outcomes.add(done, 1)
        outcomes.check()
    assert outcomes.records[0] >= 80


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 200_000])
def test_letters(size: int) -> None:
    made = letters(size)
    assert len(made) == size
    assert made[:100].isupper() or size == 0
