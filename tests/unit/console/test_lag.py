import pytest

from headrace.common.types import TopicPartition
from headrace.console.lag import MAX_SAMPLES, EndHistories, EndHistory


def test_lag_is_the_time_since_the_end_was_there() -> None:
    history = EndHistory()
    for offset, time in ((100, 0.0), (250, 5.0), (400, 10.0)):
        history.add(offset, time)
    assert history.lag_seconds(400, 10.0) == 0
    assert history.lag_seconds(500, 10.0) == 0
    assert history.lag_seconds(325, 10.0) == pytest.approx(2.5)
    assert history.lag_seconds(250, 10.0) == pytest.approx(5)
    assert history.lag_seconds(50, 10.0) == pytest.approx(10), "at least since the first sample"
    assert EndHistory().lag_seconds(0, 10.0) is None


def test_an_idle_partition_takes_one_sample() -> None:
    history = EndHistory()
    for time in range(1000):
        history.add(7, float(time))
    assert len(history) == 1
    history.add(8, 1000.0)
    assert history.lag_seconds(7, 1000.0) == pytest.approx(1.0)


def test_an_old_history_becomes_coarse_but_stays() -> None:
    history = EndHistory()
    for time in range(5000):
        history.add(time * 10, float(time))
    assert len(history) <= MAX_SAMPLES
    assert history.lag_seconds(49_000, 4999.0) == pytest.approx(99, abs=30)
    assert history.lag_seconds(49_985, 4999.0) == pytest.approx(0.5, abs=0.1)


def test_a_truncated_partition_starts_again() -> None:
    history = EndHistory()
    history.add(100, 0.0)
    history.add(200, 10.0)
    history.add(150, 20.0)
    assert history.lag_seconds(150, 30.0) == 0
    assert history.lag_seconds(125, 20.0) == pytest.approx(10)


def test_histories_of_other_partitions_go() -> None:
    histories = EndHistories()
    kept, gone = TopicPartition("a", 0), TopicPartition("b", 0)
    histories.add(kept, 5, 0.0)
    histories.add(gone, 5, 0.0)
    histories.keep_only({kept})
    assert len(histories) == 1
    assert histories.lag_seconds(gone, 0, 1.0) is None
    assert histories.lag_seconds(kept, 0, 1.0) == 1.0
