"""The filters of a query reduce the range that is read."""

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from headrace.common.types import TopicPartition
from headrace.spark.filters import bounds_of
from headrace.spark.planning import OffsetRange

TPS = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(3)]
WHOLE = OffsetRange(TPS[0], 10, 100)


def needed(*filters: Filter) -> list[TopicPartition]:
    bounds = bounds_of(filters)
    return [tp for tp in TPS if bounds.includes(tp)]


def offsets(*filters: Filter) -> tuple[int, int]:
    found = bounds_of(filters).narrow(WHOLE)
    return found.start, found.end


def test_filters_on_topic_and_partition() -> None:
    assert needed(EqualTo(("partition",), 1)) == [TPS[1], TPS[4]]
    assert needed(In(("partition",), (0, 2)), EqualTo(("topic",), "b")) == [TPS[3], TPS[5]]
    assert needed(GreaterThan(("partition",), 1)) == [TPS[2], TPS[5]]
    assert needed(LessThan(("partition",), 1), GreaterThanOrEqual(("topic",), "b")) == [TPS[3]]
    assert needed(EqualTo(("partition",), 7)) == []


def test_ignores_other_filters() -> None:
    assert needed(IsNotNull(("partition",)), Not(EqualTo(("partition",), 1)), EqualTo(("key",), b"x")) == TPS
    assert needed(EqualTo(("headers", "partition"), 1), GreaterThan(("partition",), None)) == TPS
    assert offsets(EqualTo(("offset",), None), Not(EqualTo(("offset",), 5)), IsNotNull(("offset",))) == (10, 100)


def test_filters_on_offset() -> None:
    assert offsets(GreaterThan(("offset",), 20), LessThanOrEqual(("offset",), 30)) == (21, 31)
    assert offsets(GreaterThanOrEqual(("offset",), 20), LessThan(("offset",), 30)) == (20, 30)
    assert offsets(EqualTo(("OFFSET",), 20)) == (20, 21)
    assert offsets(In(("offset",), (50, 20))) == (20, 51)
    assert bounds_of([EqualTo(("offset",), 5)]).narrow(WHOLE).size <= 0


def test_filters_on_timestamp_are_lower_bounds() -> None:
    noon, later = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)
    noon_ms = int(noon.timestamp() * 1000)
    assert bounds_of([GreaterThanOrEqual(("timestamp",), noon)]).time_ms == noon_ms
    assert bounds_of([GreaterThan(("timestamp",), noon), LessThan(("timestamp",), later)]).time_ms == noon_ms
    assert bounds_of([In(("timestamp",), (later, noon))]).time_ms == noon_ms
    assert bounds_of([LessThan(("timestamp",), noon)]).time_ms is None
    assert bounds_of([GreaterThan(("timestamp",), noon.replace(tzinfo=None))]).time_ms is None
