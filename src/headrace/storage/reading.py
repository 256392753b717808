"""Finding things in the segments of a log: the batch at an offset, a slice to send, the record of a time.

A damaged index that is noticed on the way is made again.
"""

from enum import Enum
from typing import NamedTuple

from headrace.storage.config import LogConfig
from headrace.storage.fetch_slice import FetchSlice
from headrace.storage.index import CorruptIndexError
from headrace.storage.rebuild import rebuild_indexes
from headrace.storage.segment import BatchPosition, LogSegment
from headrace.storage.segments import LogSegments
from headrace.storage.txn_index import AbortedTransaction


class FetchIsolation(Enum):
    """How far a reader may read."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


class ReadResult(NamedTuple):
    """A slice that starts with the batch that holds the offset asked for; None if there is nothing to read."""

    slice: FetchSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None = None


def find_batch(segment: LogSegment, offset: int, config: LogConfig) -> BatchPosition | None:
    """The first batch of a segment that ends at or beyond an offset."""
    try:
        return segment.find(offset)
    except CorruptIndexError:
        rebuild_indexes(segment, config)
        return segment.find(offset)


class Span(NamedTuple):
    """Where to read: from an offset, up to one that may not be read, in a log that ends at a third."""

    offset: int
    end: int
    log_end_offset: int


def find_slice(
    segments: LogSegments, span: Span, max_bytes: int, first_batch_whole: bool, config: LogConfig
) -> tuple[FetchSlice, int] | None:
    """A slice of one segment, and an offset behind everything in it; None if there is nothing to read."""
    offset, end, log_end_offset = span
    for segment in segments.from_offset(offset):
        if segment.base_offset >= end:
            return None
        first = find_batch(segment, offset, config)
        if first is None or first.base_offset >= end:
            continue  # compaction took everything from here to the end of the segment
        end_position, end_offset = segment.size, segments.end_of(segment, log_end_offset)
        if end < end_offset:
            beyond = find_batch(segment, end, config)
            end_position, end_offset = (beyond.position if beyond is not None else segment.size), end
        if max_bytes < first.size and not first_batch_whole:
            return None
        size = max(max_bytes, first.size)
        size = min(size, end_position - first.position)
        return (FetchSlice(segment.file, first.position, size, first.base_offset), end_offset) if size > 0 else None
    return None


def aborted_within(segments: LogSegments, offset: int, end: int) -> list[AbortedTransaction]:
    """The aborted transactions that have records between two offsets."""
    found: list[AbortedTransaction] = []
    for segment in segments.from_offset(offset):
        aborted, complete = segment.txn_index.overlapping(offset, end)
        found += aborted
        if complete:
            break
    return found


def find_timestamp(segments: LogSegments, timestamp: int, min_offset: int, config: LogConfig) -> tuple[int, int] | None:
    """Timestamp and offset of the first record, from `min_offset` on, that is not older than `timestamp`."""
    for segment in segments:
        if segment.max_timestamp[0] >= timestamp and segment.size:
            try:
                found = segment.find_timestamp(timestamp, min_offset)
            except CorruptIndexError:
                rebuild_indexes(segment, config)
                found = segment.find_timestamp(timestamp, min_offset)
            if found is not None:
                return found
    return None


def find_max_timestamp(segments: LogSegments, config: LogConfig) -> tuple[int, int] | None:
    """The newest timestamp and the first offset that has it; None without timestamps."""
    newest = max(segments, key=lambda segment: segment.max_timestamp[0])
    timestamp, batch_offset = newest.max_timestamp
    if timestamp < 0:
        return None
    at = find_batch(newest, batch_offset, config)
    found = newest.load(at).records().max_timestamp() if at is not None else None
    return found if found is not None and found[0] == timestamp else (timestamp, batch_offset)
