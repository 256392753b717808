"""Offsets and plans of a stream, with a cluster without sockets."""

import json
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.support.spark.fake_ranges import FakeRanges

from headrace.client.errors import KafkaTimeoutError
from headrace.common.errors import ConfigError
from headrace.common.types import TopicPartition
from headrace.spark.metadata import Cluster, DataLossError, NoSuchTopicError
from headrace.spark.options import SourceOptions
from headrace.spark.schema import source_schema
from headrace.spark.stream import StreamReader
from headrace.testing.clock import ManualClock

ALL = ReadAllAvailable()


def make(ranges: FakeRanges, clock: ManualClock | None = None, **options: str) -> StreamReader:
    given = {
        "kafka.bootstrap.servers": "x:1",
        **({} if "subscribe" in options else {"subscribePattern": "t.*"}),
        **options,
    }
    clock = clock or ManualClock()
    cluster = Cluster(SourceOptions.parse(given, streaming=True), ranges, clock)  # type: ignore[arg-type]
    reader = StreamReader(given, source_schema(False), cluster)
    reader._clock = clock
    return reader


def plan(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int, int]]:
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    planned: Sequence[Any] = reader.partitions(start, end)
    return [(each.topic, each.partition, each.start, each.end) for each in planned]


def test_batches_are_contiguous() -> None:
    ranges = FakeRanges(t=2)
    ranges.append("t", 0, 5)
    reader = make(ranges, startingOffsets="earliest")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    assert plan(reader, start, first) == [("t", 0, 0, 5)]
    assert reader.latestOffset(first, ALL) is first
    ranges.append("t", 1, 3)
    second = reader.latestOffset(first, ALL)
    assert second == {"t": {"0": 5, "1": 3}}
    assert plan(reader, first, second) == [("t", 1, 0, 3)]
    assert reader.reportLatestOffset() == second


def test_replays_first_batch_from_its_start() -> None:
    """Spark keeps the end of the first batch only: a second reader must find the same beginning, also if by then the
    latest offset is another."""
    ranges = FakeRanges(t=1)
    ranges.append("t", 0, 10)
    reader = make(ranges, startingOffsets="latest")
    logged = reader.latestOffset(reader.initialOffset(), ALL)
    assert plan(reader, reader.initialOffset(), logged) == []
    ranges.append("t", 0, 7)
    restarted = make(ranges, startingOffsets="latest")
    assert plan(restarted, restarted.initialOffset(), logged) == []
    following = restarted.latestOffset(logged, ALL)
    assert plan(restarted, logged, following) == [("t", 0, 10, 17)]


def test_unfinished_first_batch_is_the_same_after_restart() -> None:
    ranges = FakeRanges(t=2)
    ranges.append("t", 0, 10)
    reader = make(ranges, startingOffsets="earliest")
    logged = reader.latestOffset(reader.initialOffset(), ALL)
    before = plan(reader, reader.initialOffset(), logged)
    ranges.append("t", 1, 7)
    restarted = make(ranges, startingOffsets="earliest")
    assert plan(restarted, restarted.initialOffset(), logged) == before == [("t", 0, 0, 10)]


def test_max_offsets_per_trigger() -> None:
    ranges = FakeRanges(t=2)
    ranges.append("t", 0, 90)
    ranges.append("t", 1, 10)
    reader = make(ranges, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert plan(reader, reader.initialOffset(), first) == [("t", 0, 0, 18), ("t", 1, 0, 2)]
    second = reader.latestOffset(first, limit)
    assert plan(reader, first, second) == [("t", 0, 18, 36), ("t", 1, 2, 4)]
    assert reader.latestOffset(second, ALL) == {"t": {"0": 90, "1": 10}}


def test_min_offsets_per_trigger_and_max_delay() -> None:
    ranges, clock = FakeRanges(t=1), ManualClock()
    ranges.append("t", 0, 1)
    reader = make(ranges, clock, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first["t"] == {"0": 1}
    ranges.append("t", 0, 9)
    assert reader.latestOffset(first, limit) is first
    ranges.append("t", 0, 1)
    second = reader.latestOffset(first, limit)
    assert second == {"t": {"0": 11}}
    ranges.append("t", 0, 1)
    assert reader.latestOffset(second, limit) is second
    assert reader.latestOffset(second, ALL) == {"t": {"0": 12}}
    clock.advance(61_000)
    assert reader.latestOffset(second, limit) == {"t": {"0": 12}}


def test_min_and_max_offsets_per_trigger() -> None:
    ranges = FakeRanges(t=1)
    reader = make(ranges, startingOffsets="earliest", minOffsetsPerTrigger="10", maxOffsetsPerTrigger="15")
    limit = reader.getDefaultReadLimit()
    start = reader.latestOffset(reader.initialOffset(), limit)
    ranges.append("t", 0, 9)
    assert reader.latestOffset(start, limit) is start
    ranges.append("t", 0, 20)
    assert reader.latestOffset(start, limit) == {"t": {"0": 15}}


def test_available_now_ends_at_the_initial_end_of_the_log() -> None:
    ranges = FakeRanges(t=1)
    ranges.append("t", 0, 10)
    reader = make(ranges, startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="6")
    reader.prepareForTriggerAvailableNow()
    ranges.append("t", 0, 100)
    ranges.add("t2", 1)
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first["t"] == {"0": 6}
    second = reader.latestOffset(first, limit)
    assert second == {"t": {"0": 10}}
    assert reader.latestOffset(second, limit) is second


def test_available_now_starting_at_latest() -> None:
    ranges = FakeRanges(t=1)
    reader = make(ranges, startingOffsets="latest")
    reader.prepareForTriggerAvailableNow()
    ranges.append("t", 0, 4)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    assert plan(reader, reader.initialOffset(), first) == []
    assert reader.latestOffset(first, ALL) is first


def test_reads_new_partitions_from_earliest() -> None:
    ranges, clock = FakeRanges(t=1), ManualClock()
    reader = make(ranges, clock, startingOffsets="latest")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    ranges.add("t", 2)
    ranges.add("t2", 1)
    ranges.append("t", 1, 4)
    clock.advance(2000)
    second = reader.latestOffset(first, ALL)
    assert second == {"t": {"0": 0, "1": 4}, "t2": {"0": 0}, "@from": {"t": {"1": 0}, "t2": {"0": 0}}}
    assert plan(reader, first, second) == [("t", 1, 0, 4)]
    ranges.append("t2", 0, 2)
    third = reader.latestOffset(second, ALL)
    assert plan(reader, second, third) == [("t2", 0, 0, 2)]


def test_new_partition_with_deleted_records() -> None:
    ranges, clock = FakeRanges(t=1), ManualClock()
    reader = make(ranges, clock)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    ranges.add("t2", 1, begin=7)
    clock.advance(2000)
    with pytest.raises(DataLossError, match="t2-0 is new, but its earliest offset is 7"):
        reader.latestOffset(first, ALL)
    lenient = make(ranges, clock, failOnDataLoss="false")
    assert lenient.latestOffset(first, ALL)["@from"] == {"t2": {"0": 7}}


def test_deleted_partitions() -> None:
    ranges, clock = FakeRanges(t=1, t2=1), ManualClock()
    reader = make(ranges, clock)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    del ranges.logs[TopicPartition("t2", 0)]
    clock.advance(2000)
    with pytest.raises(DataLossError, match=r"t2-0 no longer exists; .*'failOnDataLoss' to 'false'"):
        reader.latestOffset(first, ALL)
    lenient = make(ranges, clock, failOnDataLoss="false")
    second = lenient.latestOffset(first, ALL)
    assert second == {"t": {"0": 0}}
    assert plan(lenient, first, second) == []
    assert lenient.latestOffset(second, ALL) is second


def test_deleted_topic_with_available_now() -> None:
    ranges, clock = FakeRanges(t=1, t2=1), ManualClock()
    named = {"subscribe": "t,t2"}
    first = {"t": {"0": 0}, "t2": {"0": 0}}
    del ranges.logs[TopicPartition("t2", 0)]
    ranges.append("t", 0, 3)
    with pytest.raises(NoSuchTopicError, match="topic t2 does not exist"):
        make(ranges, clock, **named).prepareForTriggerAvailableNow()
    lenient = make(ranges, clock, **named, failOnDataLoss="false")
    lenient.prepareForTriggerAvailableNow()
    assert lenient.latestOffset(first, ALL) == {"t": {"0": 3}}
    new = make(ranges, clock, **named, failOnDataLoss="false")
    new.prepareForTriggerAvailableNow()
    with pytest.raises(NoSuchTopicError, match="topic t2 does not exist"):
        new.latestOffset(new.initialOffset(), ALL)


def test_log_that_became_shorter() -> None:
    ranges = FakeRanges(t=1)
    ranges.append("t", 0, 10)
    reader = make(ranges, startingOffsets="earliest")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    ranges.logs[TopicPartition("t", 0)] = (0, 4)
    with pytest.raises(DataLossError, match="t-0 ends at offset 4, but was already read up to 10"):
        reader.latestOffset(first, ALL)
    lenient = make(ranges, failOnDataLoss="false")
    second = lenient.latestOffset(first, ALL)
    assert second == {"t": {"0": 4}}
    assert plan(lenient, first, second) == []


def test_replay_of_deleted_records() -> None:
    ranges = FakeRanges(t=1, t2=1)
    for name in ("t", "t2"):
        ranges.append(name, 0, 10)
    start, end = {"t": {"0": 2}, "t2": {"0": 2}}, {"t": {"0": 10}, "t2": {"0": 10}}
    assert plan(make(ranges), start, end) == [("t", 0, 2, 10), ("t2", 0, 2, 10)]
    ranges.logs[TopicPartition("t", 0)] = (0, 6)
    with pytest.raises(DataLossError, match="t-0 ends at offset 6; the replay needs offsets up to 9"):
        plan(make(ranges), start, end)
    del ranges.logs[TopicPartition("t2", 0)]
    with pytest.raises(DataLossError, match="t2-0 no longer exists"):
        plan(make(ranges), start, end)
    assert plan(make(ranges, failOnDataLoss="false"), start, end) == [("t", 0, 2, 6)]


def test_waits_for_unavailable_brokers() -> None:
    ranges = FakeRanges(t=1)
    reader = make(ranges, startingOffsets="earliest")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    ranges.append("t", 0, 3)
    ranges.outage = 4
    offset = first
    for _ in range(10):
        offset = reader.latestOffset(first, ALL)
    assert offset == {"t": {"0": 3}}


def test_query_fails_if_brokers_stay_unavailable() -> None:
    ranges, clock = FakeRanges(t=1), ManualClock()
    reader = make(ranges, clock)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    ranges.outage = 10**9
    assert reader.latestOffset(first, ALL) is first
    clock.advance(200_000)
    with pytest.raises(KafkaTimeoutError):
        reader.latestOffset(first, ALL)


def test_missing_topic_is_an_error_at_start() -> None:
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "nothing"}
    options = SourceOptions.parse(given, streaming=True)
    cluster = Cluster(options, FakeRanges(t=1), ManualClock())  # type: ignore[arg-type]
    reader = StreamReader(given, source_schema(False), cluster)
    with pytest.raises(NoSuchTopicError, match="topic nothing does not exist"):
        reader.latestOffset(reader.initialOffset(), ALL)


def test_splits_tasks_by_options() -> None:
    ranges = FakeRanges(t=1)
    ranges.append("t", 0, 10)
    reader = make(ranges, startingOffsets="earliest", minPartitions="2")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    assert plan(reader, reader.initialOffset(), first) == [("t", 0, 0, 5), ("t", 0, 5, 10)]


def test_reads_checkpoint_of_sparks_connector() -> None:
    ranges = FakeRanges(t=2)
    ranges.append("t", 0, 10)
    ranges.append("t", 1, 10)
    reader = make(ranges)
    assert plan(reader, {"t": {"0": 4}}, {"t": {"0": 10, "1": 10}}) == [("t", 0, 4, 10), ("t", 1, 0, 10)]
    assert reader.latestOffset({"t": {"0": 4, "1": 0}}, ALL) == {"t": {"0": 10, "1": 10}}


def test_checks_and_pickles_options_and_schema() -> None:
    with pytest.raises(ConfigError, match="endingOffsets"):
        make(FakeRanges(), endingOffsets="latest")
    reader = make(FakeRanges(t=1))
    assert pickle.loads(pickle.dumps(reader))._options == reader._options
