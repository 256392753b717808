"""The batches of one append, ready to be written. Nothing here changes the log.

- A leader validates everything (`headrace.storage.validation`) and assigns offsets, leader epoch and timestamps.
- A follower checks only length, CRC and the order of offsets, because its leader has validated the batches.
"""

from typing import NamedTuple

from headrace.common.errors import CorruptRecordError, InvalidRecordError, RecordListTooLargeError
from headrace.common.types import Buffer
from headrace.records import EndTransactionMarker, RecordBatch, read_marker, split_batches
from headrace.storage.config import LogConfig
from headrace.storage.validation import ValidatedBatches, plain


class PreparedAppend(NamedTuple):
    """Validated batches, ready to be written, and the metadata that the log needs about them."""

    data: Buffer
    batches: list[RecordBatch]
    markers: list[EndTransactionMarker | None]
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int


def prepare_leader_append(
    validated: ValidatedBatches, *, next_offset: int, leader_epoch: int, config: LogConfig, now_ms: int
) -> PreparedAppend:
    """Assigns offsets, leader epoch and timestamps to a producer's batches, in place."""
    data, batches, markers = validated
    if len(data) > config.segment_bytes:
        raise RecordListTooLargeError(
            f"The message batch size of {len(data)} bytes exceeds the maximum configured segment size of "
            f"{config.segment_bytes} (segment.bytes)"
        )
    offset = next_offset
    log_append_time = config.log_append_time
    for batch in batches:
        batch.patch_base_offset(offset)
        batch.patch_leader_epoch(leader_epoch)
        if log_append_time:
            batch.patch_max_timestamp(now_ms, True)
        offset = batch.next_offset
    return _describe(data, batches, markers)


def prepare_follower_append(data: Buffer, next_offset: int) -> PreparedAppend:
    """Validates a leader's batches. Their offsets must increase and start at or after the log end offset."""
    data = plain(data)
    batches = split_batches(data)
    if not batches:
        raise InvalidRecordError("The append contains no record batch; expected at least one")
    expected = next_offset
    for batch in batches:
        batch.check_crc()
        if batch.base_offset < expected:
            raise CorruptRecordError(
                f"Batch at byte {batch.position} has base offset {batch.base_offset}, which is below the expected "
                f"next offset {expected}",
                batch.position,
            )
        if batch.last_offset_delta < 0 or batch.next_offset <= batch.base_offset:
            raise CorruptRecordError(
                f"Batch at byte {batch.position} has an invalid range of offsets: base offset {batch.base_offset}, "
                f"last offset delta {batch.last_offset_delta}",
                batch.position,
            )
        expected = batch.next_offset
    markers = [read_marker(batch.records()) if batch.is_control else None for batch in batches]
    return _describe(data, batches, markers)


def _describe(data: Buffer, batches: list[RecordBatch], markers: list[EndTransactionMarker | None]) -> PreparedAppend:
    newest = batches[0]
    for batch in batches:
        if batch.max_timestamp > newest.max_timestamp:
            newest = batch
    return PreparedAppend(
        data,
        batches,
        markers,
        batches[0].base_offset,
        batches[-1].last_offset,
        newest.max_timestamp,
        newest.last_offset,
    )
