"""Rebuilds state that is derived from the log: indexes and producer state."""

from headrace.records import EndTransactionMarker, RecordBatch
from headrace.storage.config import LogConfig
from headrace.storage.producer_state import ProducerStateManager
from headrace.storage.segment import BatchPosition, LogSegment
from headrace.storage.segments import LogSegments
from headrace.storage.txn_index import AbortedTransaction


def rebuild_indexes(segment: LogSegment, config: LogConfig) -> None:
    """Rebuilds offset and time index of a segment from its batch headers."""
    segment.reset_indexes()
    for batch in segment.positions():
        segment.index_batch(batch, config.index_interval_bytes)
    segment.save_indexes(last=True)
    segment.changes += 1


def apply_batch(
    producers: ProducerStateManager, segment: LogSegment, batch: RecordBatch, marker: EndTransactionMarker | None = None
) -> None:
    """Updates producer state with a batch. Adds the transaction that it aborts to the segment's transaction index."""
    completed = producers.apply(batch, marker)
    if completed is not None and completed.aborted:
        segment.txn_index.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_offset_after(completed),
            )
        )


def replay_producers(producers: ProducerStateManager, segments: LogSegments, end_offset: int) -> None:
    """Advances producer state up to an offset. Reads only batch headers, and markers in full."""
    if producers.end_offset >= end_offset:
        return  # as after a clean shutdown: reads nothing
    for segment in segments.from_offset(producers.end_offset):
        if segment.base_offset >= end_offset:
            break
        start = segment.find(producers.end_offset)
        if start is None:
            continue
        for position, header in segment.headers(start.position):
            if header.base_offset >= end_offset:
                break
            batch = segment.load(BatchPosition.of(header, position)) if header.is_control else header
            if header.producer_id >= 0:
                producers.apply(batch)
            if header.next_offset >= end_offset:
                break  # recovery has not validated the next batch yet
    producers.end_offset = max(producers.end_offset, end_offset)
