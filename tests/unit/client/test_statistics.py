"""Windows and rows of the statistics. tests/compat compares the fields with librdkafka's."""

from typing import Any

import pytest

from headrace.client.statistics import partition_row, topic_row, window
from headrace.client.traffic import Traffic
from headrace.common.metrics import Histogram
from headrace.common.types import TopicPartition


def test_empty_window_is_all_zero() -> None:
    assert set(window().values()) == {0}


def test_window_statistics() -> None:
    values = Histogram()
    for number in range(1, 1001):
        values.record(number / 1000)
    shown = window(values, 1_000_000)
    assert (shown["min"], shown["max"], shown["cnt"]) == (1000, 1_000_000, 1000)
    assert shown["avg"] == pytest.approx(500_500, rel=0.01)
    assert shown["p50"] == pytest.approx(500_000, rel=0.1)
    assert shown["p99"] == pytest.approx(990_000, rel=0.1)
    assert shown["stddev"] == pytest.approx(288_675, rel=0.1)
    assert all(isinstance(value, int) for value in shown.values())


def test_topic_and_partition_rows() -> None:
    found: dict[str, Any] = {"topics": {}}
    partition_row(found, "t", 3, 7, app_offset=5)
    row = found["topics"]["t"]["partitions"]["3"]
    assert (row["leader"], row["app_offset"], row["hi_offset"]) == (7, 5, -1001)
    assert topic_row(found, "t") is found["topics"]["t"]
    with pytest.raises(AssertionError, match="no_such"):
        partition_row(found, "t", 3, no_such=1)


def test_traffic_counters() -> None:
    traffic = Traffic()
    tp = TopicPartition("t", 0)
    traffic.note(tp, 2, 100)
    traffic.note_batch(tp, 3, 50)
    assert (traffic.records, traffic.bytes, traffic.partitions[tp]) == (5, 150, (5, 150))
    sizes, counts = traffic.take_sizes()["t"]
    assert (sizes.total, counts.total) == (50, 3)
    assert traffic.take_sizes() == {}
