"""Filters of a query, as far as they tell what need not be read. Pure.

Spark hands over filters that are joined by `and`; those on `topic`, `partition`, `offset` and `timestamp` narrow down
what is planned. All of them go back to Spark, which applies them to the rows: what is planned may be too much, never
too little.

A time is only good as a lower bound: the log finds the first record that is not older, but records behind a later one
may be older again.
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
_ENDLESS = 2**63 - 1


@dataclass
class Bounds:
    """What a query can need: topics and partitions that pass `filters`, offsets from `low` to before `high`, times from
    `time_ms` on."""

    filters: list[Filter] = field(default_factory=list)
    low: int = 0
    high: int = _ENDLESS
    time_ms: int | None = None

    def needs(self, tp: TopicPartition) -> bool:
        """Whether a partition can have rows that pass."""
        values = {"topic": tp.topic, "partition": tp.partition}
        return all(_holds(each, values[_column(each)]) for each in self.filters)

    def narrow(self, whole: OffsetRange) -> OffsetRange:
        """A range without offsets that cannot pass; its size may be 0 or less."""
        return OffsetRange(whole.tp, max(whole.start, self.low), min(whole.end, self.high))


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """The bounds that filters set; what says nothing about them is passed over."""
    found = Bounds()
    for each in filters:
        column = _column(each)
        if column in ("topic", "partition") and isinstance(each, _KNOWN):
            found.filters.append(each)
        elif column == "offset":
            _narrow_offsets(found, each)
        elif column == "timestamp":
            low = _lowest_time_ms(each)
            if low is not None:
                found.time_ms = low if found.time_ms is None else max(found.time_ms, low)
    return found


_KNOWN = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual)


def _column(each: Filter) -> str:
    """The column of a filter; none of a field within a column."""
    path: tuple[str, ...] = getattr(each, "attribute", ())
    return str(path[0]).lower() if len(path) == 1 else ""


def _holds(each: Filter, value: Any) -> bool:
    """Whether a filter is true of a value, or cannot be told."""
    try:
        if isinstance(each, In):
            return value in each.value
        wanted = getattr(each, "value", None)
        if isinstance(each, EqualTo | EqualNullSafe):
            return bool(value == wanted)
        if isinstance(each, GreaterThan):
            return bool(value > wanted)
        if isinstance(each, GreaterThanOrEqual):
            return bool(value >= wanted)
        if isinstance(each, LessThan):
            return bool(value < wanted)
        if isinstance(each, LessThanOrEqual):
            return bool(value <= wanted)
    except TypeError:
        pass
    return True


def _narrow_offsets(found: Bounds, each: Filter) -> None:
    value = getattr(each, "value", None)
    if isinstance(each, In):
        numbers = [offset for offset in each.value if isinstance(offset, int)]
        if numbers and len(numbers) == len(each.value):
            found.low, found.high = max(found.low, min(numbers)), min(found.high, max(numbers) + 1)
    elif not isinstance(value, int) or isinstance(value, bool):
        return
    elif isinstance(each, EqualTo | EqualNullSafe):
        found.low, found.high = max(found.low, value), min(found.high, value + 1)
    elif isinstance(each, GreaterThan):
        found.low = max(found.low, value + 1)
    elif isinstance(each, GreaterThanOrEqual):
        found.low = max(found.low, value)
    elif isinstance(each, LessThan):
        found.high = min(found.high, value)
    elif isinstance(each, LessThanOrEqual):
        found.high = min(found.high, value + 1)


def _lowest_time_ms(each: Filter) -> int | None:
    """The earliest time that passes, in whole ms; None if there is none, or it cannot be told."""
    if isinstance(each, In):
        values = list(each.value)
    elif isinstance(each, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
        values = [each.value]
    else:
        return None
    if not values or not all(isinstance(value, datetime) and value.tzinfo is not None for value in values):
        return None
    lowest_ms: int = min((value - _EPOCH) // timedelta(milliseconds=1) for value in values)
    return lowest_ms if lowest_ms >= 0 else None
