"""The segments of a log, ordered by base offset."""

import bisect
from collections.abc import Iterable, Iterator

from headrace.storage.segment import LogSegment


class LogSegments:
    """The segments of one log. Never empty once the log is open; only the last segment (the active one) receives
    appends."""

    def __init__(self, segments: Iterable[LogSegment] = ()):
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(list(self._segments))

    def __contains__(self, segment: LogSegment) -> bool:
        index = bisect.bisect_left(self._bases, segment.base_offset)
        return index < len(self._segments) and self._segments[index] is segment

    @property
    def active(self) -> LogSegment:
        return self._segments[-1]

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    @property
    def bases(self) -> list[int]:
        return list(self._bases)

    def add(self, segment: LogSegment) -> None:
        index = bisect.bisect_left(self._bases, segment.base_offset)
        if index < len(self._bases) and self._bases[index] == segment.base_offset:
            raise ValueError(f"a segment with base offset {segment.base_offset} already exists")
        self._segments.insert(index, segment)
        self._bases.insert(index, segment.base_offset)

    def remove(self, segment: LogSegment) -> None:
        if segment not in self:
            raise ValueError(f"the segment with base offset {segment.base_offset} is not in the log")
        index = bisect.bisect_left(self._bases, segment.base_offset)
        del self._segments[index], self._bases[index]

    def floor_index(self, offset: int) -> int:
        """Returns the position of the segment with the largest base offset not above `offset`; -1 if there is none."""
        return bisect.bisect_right(self._bases, offset) - 1

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Returns the segments that may contain `offset` or later offsets."""
        return self._segments[max(0, self.floor_index(offset)) :]

    def end_of(self, segment: LogSegment, log_end_offset: int) -> int:
        """Returns where the offsets of a segment end: at the next base offset, or at the log end offset."""
        next_index = bisect.bisect_right(self._bases, segment.base_offset)
        return self._bases[next_index] if next_index < len(self._bases) else log_end_offset

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)
