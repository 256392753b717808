"""Lookups in the segments of a log: the batch at an offset, the slice for a fetch, the record at a timestamp.

A lookup that finds a damaged index rebuilds it and tries again.
"""

from enum import Enum
from typing import NamedTuple

from headrace.common.config import INT_MAX
from headrace.storage.config import LogConfig
from headrace.storage.fetch_slice import FetchSlice
from headrace.storage.index import CorruptIndexError
from headrace.storage.large_batches import records_of
from headrace.storage.rebuild import rebuild_indexes
from headrace.storage.segment import BatchPosition, LogSegment
from headrace.storage.segments import LogSegments
from headrace.storage.txn_index import AbortedTransaction


class FetchIsolation(Enum):
    """The offset up to which a reader may read."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


class ReadResult(NamedTuple):
    """The result of a read. `slice` starts with the batch that contains the requested offset; None without data."""

    slice: FetchSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None = None


def find_batch(segment: LogSegment, offset: int, config: LogConfig) -> BatchPosition | None:
    """Returns the first batch of a segment that ends at or after an offset."""
    try:
        return segment.find(offset)
    except CorruptIndexError:
        rebuild_indexes(segment, config)
        return segment.find(offset)


class ReadRange(NamedTuple):
    """The offsets of a read: from `offset` to below `end`, in a log that ends at `log_end_offset`."""

    offset: int
    end: int
    log_end_offset: int


def find_slice(
    segments: LogSegments, read_range: ReadRange, max_bytes: int, first_batch_whole: bool, config: LogConfig
) -> tuple[FetchSlice, int] | None:
    """Returns a slice of one segment and an upper bound of its offsets; None if there is nothing to read."""
    offset, end, log_end_offset = read_range
    for segment in segments.from_offset(offset):
        if segment.base_offset >= end:
            return None
        first_batch = find_batch(segment, offset, config)
        if first_batch is None or first_batch.base_offset >= end:
            continue  # compaction removed everything from here to the end of the segment
        end_position, end_offset = segment.size, segments.end_of(segment, log_end_offset)
        if end < end_offset:
            end_batch = find_batch(segment, end, config)
            end_position, end_offset = (end_batch.position if end_batch is not None else segment.size), end
        if max_bytes < first_batch.size and not first_batch_whole:
            return None
        size = max(max_bytes, first_batch.size)
        size = min(size, end_position - first_batch.position)
        if size <= 0:
            return None
        return FetchSlice(segment.file, first_batch.position, size, first_batch.base_offset), end_offset
    return None


def aborted_within(segments: LogSegments, offset: int, end: int) -> list[AbortedTransaction]:
    """Returns the aborted transactions that have records in `[offset, end)`."""
    transactions: list[AbortedTransaction] = []
    for segment in segments.from_offset(offset):
        aborted, complete = segment.txn_index.overlapping(offset, end)
        transactions += aborted
        if complete:
            break
    return transactions


def find_timestamp(
    segments: LogSegments, timestamp: int, min_offset: int, config: LogConfig, max_inline_bytes: int = INT_MAX
) -> tuple[int, int] | None:
    """Returns timestamp and offset of the first record at or after both `timestamp` and `min_offset`."""
    for segment in segments:
        if segment.max_timestamp[0] >= timestamp and segment.size:
            try:
                record = segment.find_timestamp(timestamp, min_offset, max_inline_bytes)
            except CorruptIndexError:
                rebuild_indexes(segment, config)
                record = segment.find_timestamp(timestamp, min_offset, max_inline_bytes)
            if record is not None:
                return record
    return None


def find_max_timestamp(
    segments: LogSegments, config: LogConfig, max_inline_bytes: int = INT_MAX
) -> tuple[int, int] | None:
    """Returns the largest timestamp and the first offset that has it; None without timestamps."""
    newest = max(segments, key=lambda segment: segment.max_timestamp[0])
    timestamp, batch_offset = newest.max_timestamp
    if timestamp < 0:
        return None
    batch = find_batch(newest, batch_offset, config)
    record = records_of(newest.load(batch), max_inline_bytes).max_timestamp() if batch is not None else None
    return record if record is not None and record[0] == timestamp else (timestamp, batch_offset)
