"""Retention: deletes the oldest segments by time, by size and by log start offset."""

from collections.abc import Callable

from headrace.storage.files import DiskFullError
from headrace.storage.log import Log
from headrace.storage.segment import LogSegment


def delete_old_segments(log: Log) -> int:
    """Applies the log's retention. Returns the number of deleted segments."""
    now_ms = log.context.clock.time_ms()
    deleted = 0
    if log.config.delete:
        deleted += _delete_while(log, lambda segment: _is_expired(log, segment, now_ms))
        deleted += _delete_while(log, _fits_into_excess(log))
    start = log.log_start_offset
    return deleted + _delete_while(log, lambda segment: log.segments.end_of(segment, log.log_end_offset) <= start)


def _is_expired(log: Log, segment: LogSegment, now_ms: int) -> bool:
    if log.config.retention_ms < 0:
        return False
    timestamp = segment.max_timestamp[0]
    newest = timestamp if timestamp >= 0 else segment.created_ms
    return now_ms - newest > log.config.retention_ms


def _fits_into_excess(log: Log) -> Callable[[LogSegment], bool]:
    """Returns a predicate: True while deleting the next segment leaves at least `retention.bytes`."""
    if log.config.retention_bytes < 0:
        return lambda _: False
    excess = log.size_in_bytes - log.config.retention_bytes

    def fits(segment: LogSegment) -> bool:
        nonlocal excess
        excess -= segment.size
        return excess >= 0

    return fits


def _delete_while(log: Log, is_old: Callable[[LogSegment], bool]) -> int:
    """Deletes the oldest segments while the predicate holds, but none above the high watermark."""
    deletable: list[LogSegment] = []
    for segment in log.segments:
        is_empty_active = segment is log.segments.active and segment.size == 0
        end = log.segments.end_of(segment, log.log_end_offset)
        if is_empty_active or end > log.high_watermark or not is_old(segment):
            break
        deletable.append(segment)
    if deletable and deletable[-1] is log.segments.active and not _roll(log):
        deletable.pop()
    if deletable:
        log.increment_log_start_offset(log.segments.end_of(deletable[-1], log.log_end_offset))
        log.delete_segments(deletable)
    return len(deletable)


def _roll(log: Log) -> bool:
    """Rolls the log. Returns False if the disk is full: deleting the older segments may free space."""
    try:
        log.roll()
    except DiskFullError:
        return False
    return True
