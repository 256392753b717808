"""What a batch reads of each partition, and how that is cut into tasks. Pure.

    prorate        a limit for all partitions, shared out by their backlog
    split_ranges   stretches of partitions cut into tasks: `minPartitions`, `maxRecordsPerPartition`

Invariants: ranges that a plan makes of a range follow each other without gap or overlap; the same input makes the same
plan, since a replayed batch has to be cut as before.
"""

import heapq
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from headrace.common.types import TopicPartition
from headrace.spark.offsets import Offsets

__all__ = ["OffsetRange", "backlog", "prorate", "ranges_between", "split_ranges"]


class OffsetRange(NamedTuple):
    """The offsets of a partition from `start` to before `end`."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def backlog(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between."""
    return sum(max(0, offset - start[tp]) for tp, offset in end.items())


def prorate(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """Ends that are at most about `limit` offsets away from the starts in all, each in proportion to its backlog. A
    partition with any backlog gets at least one offset, so that none starves; `start` has all partitions of `end`."""
    total = backlog(start, end)
    if total <= limit:
        return dict(end)
    found: Offsets = {}
    for tp, offset in end.items():
        size = offset - start[tp]
        # The end may lie before the start where a log lost its end.
        found[tp] = offset if size <= 0 else start[tp] + min(size, max(1, limit * size // total))
    return found


def ranges_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges that are not empty, in order of topic and partition. `start` has all partitions of `end`."""
    return [OffsetRange(tp, start[tp], end[tp]) for tp in sorted(end) if end[tp] > start[tp]]


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Ranges of at most `max_records` offsets each, and at least `min_partitions` of them while there are as many
    offsets. Without limits each partition is one range."""
    found = [each for each in ranges if each.size > 0]
    parts = [1 if max_records is None else -(-each.size // max_records) for each in found]
    missing = (min_partitions or 0) - sum(parts)
    if missing > 0:
        # The range with the largest parts gets one more, again and again; where equal, the first.
        largest = [(-each.size / count, index) for index, (each, count) in enumerate(zip(found, parts, strict=True))]
        heapq.heapify(largest)
        while missing > 0 and largest:
            _, index = heapq.heappop(largest)
            if parts[index] < found[index].size:
                parts[index] += 1
                missing -= 1
                heapq.heappush(largest, (-found[index].size / parts[index], index))
    return [piece for each, count in zip(found, parts, strict=True) for piece in _cut(each, count)]


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Equal parts, but for one offset more or less."""
    edges = [whole.start + whole.size * index // parts for index in range(parts + 1)]
    return [OffsetRange(whole.tp, start, end) for start, end in pairwise(edges)]
