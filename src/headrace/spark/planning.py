"""Decides which offsets a batch reads of each partition, and splits them into tasks. Pure.

    prorate        shares a limit among all partitions by their backlog
    split_ranges   splits offset ranges into tasks: `minPartitions`, `maxRecordsPerPartition`

Invariants:
- The parts of a range follow each other without gap or overlap.
- The same input gives the same plan, because a replayed batch must be split as before.
"""

import heapq
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from headrace.common.types import TopicPartition
from headrace.spark.offsets import Offsets

__all__ = ["OffsetRange", "backlog", "prorate", "ranges_between", "split_ranges"]


class OffsetRange(NamedTuple):
    """The offsets of a partition from `start` (inclusive) to `end` (exclusive)."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def backlog(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Returns the number of offsets between start and end, over all partitions."""
    return sum(max(0, offset - start[tp]) for tp, offset in end.items())


def prorate(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """Returns end offsets that are in total about `limit` offsets after the starts, in proportion to the backlogs. A
    partition with a backlog gets at least one offset, so that none starves. `start` has all partitions of `end`."""
    total = backlog(start, end)
    if total <= limit:
        return dict(end)
    ends: Offsets = {}
    for tp, offset in end.items():
        size = offset - start[tp]
        # The end is before the start if a log lost its end.
        ends[tp] = offset if size <= 0 else start[tp] + min(size, max(1, limit * size // total))
    return ends


def ranges_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Returns the ranges that are not empty, sorted by topic and partition. `start` has all partitions of `end`."""
    return [OffsetRange(tp, start[tp], end[tp]) for tp in sorted(end) if end[tp] > start[tp]]


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Splits ranges into parts of at most `max_records` offsets, and into at least `min_partitions` parts if there are
    as many offsets. Without limits each range stays whole."""
    nonempty = [offset_range for offset_range in ranges if offset_range.size > 0]
    parts = [1 if max_records is None else -(-offset_range.size // max_records) for offset_range in nonempty]
    missing = (min_partitions or 0) - sum(parts)
    if missing > 0:
        # Repeatedly add a part to the range with the largest parts; to the first of equal ranges.
        largest = [
            (-offset_range.size / count, index)
            for index, (offset_range, count) in enumerate(zip(nonempty, parts, strict=True))
        ]
        heapq.heapify(largest)
        while missing > 0 and largest:
            _, index = heapq.heappop(largest)
            if parts[index] < nonempty[index].size:
                parts[index] += 1
                missing -= 1
                heapq.heappush(largest, (-nonempty[index].size / parts[index], index))
    return [
        piece
        for offset_range, count in zip(nonempty, parts, strict=True)
        for piece in _split_evenly(offset_range, count)
    ]


def _split_evenly(offset_range: OffsetRange, parts: int) -> list[OffsetRange]:
    """Splits a range into parts whose sizes differ by at most one offset."""
    edges = [offset_range.start + offset_range.size * index // parts for index in range(parts + 1)]
    return [OffsetRange(offset_range.tp, start, end) for start, end in pairwise(edges)]
