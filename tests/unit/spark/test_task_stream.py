"""The tasks of a stream that runs a function: whole ranges, and the partitions of the previous batch."""

import json
import pickle
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.support.spark.fake_ranges import FakeRanges

from headrace.common.types import TopicPartition
from headrace.spark.metadata import Cluster
from headrace.spark.options import SourceOptions
from headrace.spark.task_stream import TASK_OPTION, TaskRange, TaskStreamReader, encode_task, task_ranges
from headrace.testing.clock import ManualClock

OPTIONS = {"kafka.bootstrap.servers": "x:1", "subscribePattern": "t.*", "startingOffsets": "earliest"}
ALL = ReadAllAvailable()


def make(ranges: FakeRanges, **more: str) -> TaskStreamReader:
    options = {**OPTIONS, **more}
    clock = ManualClock()
    cluster = Cluster(SourceOptions.parse(options, streaming=True), ranges, clock)  # type: ignore[arg-type]
    reader = TaskStreamReader({**options, TASK_OPTION: encode_task(describe)}, cluster)
    reader._clock = clock
    return reader


def describe(task_range: TaskRange) -> bytes:
    return str(task_range).encode()


def plan(reader: TaskStreamReader, start: Any, end: Any) -> list[tuple[Any, ...]]:
    planned: list[Any] = list(reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end))))
    return [(each.topic, each.partition, each.start, each.end, each.previous_partitions) for each in planned]


def test_ranges_stay_whole() -> None:
    ranges = FakeRanges(t=2)
    ranges.append("t", 0, 1000)
    reader = make(ranges, minPartitions="8", maxRecordsPerPartition="10")
    start = reader.initialOffset()
    assert plan(reader, start, reader.latestOffset(start, ALL)) == [("t", 0, 0, 1000, None)]


def test_added_partitions_give_every_partition_a_task() -> None:
    ranges = FakeRanges(t=2, tu=1)
    ranges.append("t", 0, 5)
    reader = make(ranges)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    ranges.add("t", 3)
    ranges.append("t", 2, 4)
    reader._partitions_at = None
    second = reader.latestOffset(first, ALL)
    expected = [("t", 0, 5, 5, (0, 1)), ("t", 1, 0, 0, (0, 1)), ("t", 2, 0, 4, (0, 1))]
    assert plan(reader, first, second) == expected
    assert plan(make(ranges), first, second) == expected, "a replay has the same tasks"
    ranges.append("t", 1, 1)
    assert plan(reader, second, reader.latestOffset(second, ALL)) == [("t", 1, 0, 1, None)]


def test_topics_that_match_later_have_nothing_to_merge() -> None:
    ranges = FakeRanges(t=1)
    reader = make(ranges)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    ranges.add("t2", 2)
    ranges.append("t2", 1, 3)
    reader._partitions_at = None
    assert plan(reader, first, reader.latestOffset(first, ALL)) == [("t2", 1, 0, 3, None)]


def test_deleted_partition_in_a_replay() -> None:
    old, new = TopicPartition("t", 0), TopicPartition("t", 1)
    (task,) = task_ranges({old: 5}, {old: 7, new: 2}, {old: 5, new: 0}, {new: 2})
    assert (task.partition, task.previous_partitions) == (1, (0,))


def test_runs_the_function() -> None:
    reader = pickle.loads(pickle.dumps(make(FakeRanges(t=1))))
    (batch,) = reader.read(TaskRange("t", 0, 3, 9))
    assert batch.to_pydict() == {"result": [b"t-0, offsets 3 to 8"]}
    (batch,) = reader.read(TaskRange("t", 0, 3, 3, (0,)))
    assert batch.to_pydict() == {"result": [b"t-0, no offsets"]}
    assert list(reader.read(InputPartition(None))) == []
