"""The order in which a scan reads a topic: parts of partitions, one after the other. Pure.

The partitions take turns, so that the first matches come from all of them. Oldest first, each partition is read
forward. Newest first, the parts go backward; a part itself is read forward.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

__all__ = ["Part", "parts_of", "plan_parts"]


class Part(NamedTuple):
    """Offsets of a partition from `start` to before `end`."""

    partition: int
    start: int
    end: int


def plan_parts(
    ranges: Mapping[int, tuple[int, int]], part_offsets: int, newest_first: bool, largest: int | None = None
) -> Iterator[Part]:
    """Yields the parts of the ranges by partition, in the order in which to read them. Their size doubles with each
    turn, up to `largest`, which is `part_offsets` by default."""
    left = {partition: (start, end) for partition, (start, end) in sorted(ranges.items()) if start < end}
    while left:
        for partition, (start, end) in list(left.items()):
            if newest_first:
                middle = max(start, end - part_offsets)
                yield Part(partition, middle, end)
                rest = (start, middle)
            else:
                middle = min(end, start + part_offsets)
                yield Part(partition, start, middle)
                rest = (middle, end)
            if rest[0] < rest[1]:
                left[partition] = rest
            else:
                del left[partition]
        part_offsets = min(2 * part_offsets, max(part_offsets, largest or 0))


def parts_of(offsets: Iterable[tuple[int, int]]) -> list[Part]:
    """Returns parts that consist of single records; neighbors share a part."""
    parts: list[Part] = []
    for partition, offset in sorted(set(offsets)):
        if parts and parts[-1].partition == partition and parts[-1].end == offset:
            parts[-1] = parts[-1]._replace(end=offset + 1)
        else:
            parts.append(Part(partition, offset, offset + 1))
    return parts
