"""Rates, lag and latency from samples of counters."""

import pytest

from headrace.shop.live_figures import LiveFigures, PerSecond


def test_figures_of_a_steady_run() -> None:
    figures = LiveFigures()
    for tick in range(1, 101):  # 1,000 events per second, done two seconds later, with six rows each
        seconds = tick / 10
        done = max(0, tick * 100 - 2000)
        figures.add(seconds, tick * 100, done, 6 * done)
    assert figures.last.lag == 2000
    assert figures.rates() == (pytest.approx(1000), pytest.approx(6000))
    latencies = figures.latencies()
    assert latencies is not None
    assert latencies.p50 == pytest.approx(2.05, abs=0.06)
    assert latencies.p99 == pytest.approx(2.1, abs=0.06)


def test_events_of_a_batch_complete_together() -> None:
    figures = LiveFigures()
    for second in range(1, 11):
        figures.add(second, second * 100, 0, 0)
    assert figures.latencies() is None
    figures.add(10.5, 1000, 1000, 6000)
    latencies = figures.latencies()
    assert latencies is not None
    assert latencies.p50 == pytest.approx(5.5, abs=0.5), "the first was sent 10.5 s ago, the last 0.5 s ago"
    assert latencies.p99 > 9.5


def test_series_per_second() -> None:
    figures = LiveFigures()
    for tick in range(1, 8):
        figures.add(tick / 2, tick * 10, max(0, tick - 2) * 10, 0)
    found = figures.per_second()
    assert found.times_ms == [0, 1000, 2000, 3000]
    assert found.sent == [20, 20, 20, 10]
    assert found.done == [0, 20, 20, 10]
    assert found.lag == [20, 20, 20, 20]
    assert found.latency == pytest.approx([0.0, 1.25, 1.25, 1.25], abs=0.3)


def test_without_samples() -> None:
    figures = LiveFigures()
    assert figures.rates() == (0.0, 0.0)
    assert figures.latencies() is None
    assert figures.per_second() == PerSecond([0], [0], [0], [0], [0.0])
