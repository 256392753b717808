"""Partitions and offsets of the cluster."""

import pytest
from tests.support.spark.fake_ranges import FakeRanges

from headrace.client.errors import KafkaTimeoutError
from headrace.common.errors import ConfigError
from headrace.common.types import TopicPartition
from headrace.spark.metadata import Cluster, NoSuchTopicError
from headrace.spark.options import SourceOptions
from headrace.testing.clock import ManualClock

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def make(ranges: FakeRanges, **options: str) -> Cluster:
    given = {"kafka.bootstrap.servers": "x:1", **options}
    return Cluster(SourceOptions.parse(given), ranges, ManualClock())  # type: ignore[arg-type]


def test_resolves_topics_patterns_and_partitions() -> None:
    ranges = FakeRanges(a=2, b=1, ab=1)
    assert make(ranges, subscribe="a,b").partitions() == {A0, A1, B0}
    assert make(ranges, subscribePattern="a|b").partitions() == {A0, A1, B0}
    assert make(ranges, subscribePattern="nothing.*").partitions() == set()
    assert make(ranges, assign='{"a": [1], "b": [0, 9]}').partitions() == {A1, B0}


def test_missing_topic_is_an_error_after_retries() -> None:
    ranges = FakeRanges(a=1)
    with pytest.raises(NoSuchTopicError, match="topic c does not exist; the option 'subscribe' names it"):
        make(ranges, subscribe="a,c").partitions()
    assert ranges.asked > 3


def test_retries_failed_requests() -> None:
    ranges = FakeRanges(a=1)
    ranges.outage = 2
    assert make(ranges, subscribe="a").latest([A0]) == {A0: 0}
    ranges.outage = 2
    with pytest.raises(KafkaTimeoutError):
        make(ranges, subscribe="a", **{"fetchOffset.numRetries": "2"}).latest([A0])


def test_resolves_offsets() -> None:
    ranges = FakeRanges()
    ranges.logs = {A0: (5, 50), A1: (0, 7)}
    cluster = make(
        ranges, subscribe="a", startingOffsets='{"a": {"0": -2, "1": 3}}', endingOffsets='{"a":{"0":9,"1":-1}}'
    )
    assert cluster.start([A0, A1]) == {A0: 5, A1: 3}
    assert cluster.end([A0, A1]) == {A0: 9, A1: 7}
    with pytest.raises(ConfigError, match=r"must name exactly the partitions .* Named: a-0, a-1\. Read: a-0"):
        cluster.start([A0])
    with pytest.raises(ConfigError, match="'endingOffsets' must name exactly"):
        cluster.end([A0, A1, B0])


def test_resolves_timestamps() -> None:
    ranges = FakeRanges()
    ranges.logs = {A0: (5, 50), A1: (0, 7)}
    ranges.times = {(A0, 1000): 20, (A1, 1000): 2, (A0, 2000): 30}
    both = [A0, A1]
    assert make(ranges, subscribe="a", startingTimestamp="1000").start(both) == {A0: 20, A1: 2}
    assert make(ranges, subscribe="a", endingTimestamp="2000").end(both) == {A0: 30, A1: 7}
    by_partition = '{"a": {"0": 1000, "1": 2000}}'
    late = make(ranges, subscribe="a", startingOffsetsByTimestamp=by_partition)
    with pytest.raises(ConfigError, match="a-1 has no record at or after"):
        late.start(both)
    lenient = {"startingOffsetsByTimestamp": by_partition, "startingOffsetsByTimestampStrategy": "latest"}
    assert make(ranges, subscribe="a", **lenient).start(both) == {A0: 20, A1: 7}
    with pytest.raises(ConfigError, match="'startingOffsetsByTimestamp' must name exactly"):
        late.start([A0])
