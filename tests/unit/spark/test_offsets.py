"""Offsets in Spark's JSON format."""

import json

from headrace.common.types import TopicPartition
from headrace.spark.offsets import INITIAL, from_spark, start_of, to_spark

A2, A10, B0 = TopicPartition("a", 2), TopicPartition("a", 10), TopicPartition("b", 0)


def test_json_is_sorted() -> None:
    one = json.dumps(to_spark({B0: 1, A10: 2, A2: 3}, {A10: 0, A2: 0}))
    other = json.dumps(to_spark({A2: 3, A10: 2, B0: 1}, {A2: 0, A10: 0}))
    assert one == other == '{"a": {"2": 3, "10": 2}, "b": {"0": 1}, "@from": {"a": {"2": 0, "10": 0}}}'


def test_round_trip() -> None:
    offsets, start = {A2: 3, A10: 2}, {A10: 1}
    spark_offset = json.loads(json.dumps(to_spark(offsets, start)))
    assert from_spark(spark_offset) == offsets
    assert start_of(spark_offset) == start
    assert start_of(to_spark(offsets)) == {}
    assert from_spark(INITIAL) == start_of(INITIAL) == {}


def test_reads_offsets_of_sparks_connector() -> None:
    assert from_spark(json.loads('{"a":{"2":3,"10":2}}')) == {A2: 3, A10: 2}
