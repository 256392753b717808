"""Uses the filters of a query to read less. Pure.

Spark passes filters that are joined by `and`. Filters on `topic`, `partition`, `offset` and `timestamp` narrow the
plan. All filters go back to Spark, which applies them to the rows, so the plan may contain too much, but never too
little.

A timestamp is only useful as a lower bound: the log finds the first record that is not older, but older records may
follow a newer one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from headrace.common.types import TopicPartition
from headrace.spark.planning import OffsetRange

__all__ = ["Bounds", "bounds_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_OFFSET = 2**63 - 1


@dataclass
class Bounds:
    """The records that a query can need.

    Their topic and partition pass `filters`. Their offset is at least `start_offset` and less than `end_offset`. Their
    timestamp is `time_ms` or later.
    """

    filters: list[Filter] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = _MAX_OFFSET
    time_ms: int | None = None

    def includes(self, tp: TopicPartition) -> bool:
        """Returns whether a partition can have rows that pass."""
        values = {"topic": tp.topic, "partition": tp.partition}
        return all(_may_pass(column_filter, values[_column(column_filter)]) for column_filter in self.filters)

    def narrow(self, offsets: OffsetRange) -> OffsetRange:
        """Removes offsets that cannot pass from a range. The size of the result may be 0 or negative."""
        return OffsetRange(offsets.tp, max(offsets.start, self.start_offset), min(offsets.end, self.end_offset))


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """Returns the bounds that the filters set. Ignores filters that set no bounds."""
    bounds = Bounds()
    for column_filter in filters:
        column = _column(column_filter)
        if column in ("topic", "partition") and isinstance(column_filter, _COMPARISONS):
            bounds.filters.append(column_filter)
        elif column == "offset":
            _narrow_offsets(bounds, column_filter)
        elif column == "timestamp":
            earliest_ms = _lowest_time_ms(column_filter)
            if earliest_ms is not None:
                bounds.time_ms = earliest_ms if bounds.time_ms is None else max(bounds.time_ms, earliest_ms)
    return bounds


_COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual)


def _column(column_filter: Filter) -> str:
    """Returns the column of a filter, or an empty string for a nested field."""
    path: tuple[str, ...] = getattr(column_filter, "attribute", ())
    return str(path[0]).lower() if len(path) == 1 else ""


def _may_pass(column_filter: Filter, value: Any) -> bool:
    """Returns False only if the filter certainly excludes a value."""
    try:
        if isinstance(column_filter, In):
            return value in column_filter.value
        expected = getattr(column_filter, "value", None)
        if isinstance(column_filter, EqualTo | EqualNullSafe):
            return bool(value == expected)
        if isinstance(column_filter, GreaterThan):
            return bool(value > expected)
        if isinstance(column_filter, GreaterThanOrEqual):
            return bool(value >= expected)
        if isinstance(column_filter, LessThan):
            return bool(value < expected)
        if isinstance(column_filter, LessThanOrEqual):
            return bool(value <= expected)
    except TypeError:
        pass
    return True


def _narrow_offsets(bounds: Bounds, column_filter: Filter) -> None:
    value = getattr(column_filter, "value", None)
    if isinstance(column_filter, In):
        numbers = [offset for offset in column_filter.value if isinstance(offset, int)]
        if numbers and len(numbers) == len(column_filter.value):
            bounds.start_offset, bounds.end_offset = (
                max(bounds.start_offset, min(numbers)),
                min(bounds.end_offset, max(numbers) + 1),
            )
    elif not isinstance(value, int) or isinstance(value, bool):
        return
    elif isinstance(column_filter, EqualTo | EqualNullSafe):
        bounds.start_offset, bounds.end_offset = max(bounds.start_offset, value), min(bounds.end_offset, value + 1)
    elif isinstance(column_filter, GreaterThan):
        bounds.start_offset = max(bounds.start_offset, value + 1)
    elif isinstance(column_filter, GreaterThanOrEqual):
        bounds.start_offset = max(bounds.start_offset, value)
    elif isinstance(column_filter, LessThan):
        bounds.end_offset = min(bounds.end_offset, value)
    elif isinstance(column_filter, LessThanOrEqual):
        bounds.end_offset = min(bounds.end_offset, value + 1)


def _lowest_time_ms(column_filter: Filter) -> int | None:
    """Returns the earliest timestamp that passes, in whole ms, or None if the filter sets no lower bound."""
    if isinstance(column_filter, In):
        values = list(column_filter.value)
    elif isinstance(column_filter, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
        values = [column_filter.value]
    else:
        return None
    if not values or not all(isinstance(value, datetime) and value.tzinfo is not None for value in values):
        return None
    lowest_ms: int = min((value - _EPOCH) // timedelta(milliseconds=1) for value in values)
    return lowest_ms if lowest_ms >= 0 else None
