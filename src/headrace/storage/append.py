"""Validation of record batches before they are written. Nothing here changes the log.

- A leader validates everything: magic, length, CRC and every record. It assigns offsets, leader epoch and timestamps.
- A follower checks only length, CRC and the order of offsets, because its leader has validated the batches.
"""

from typing import NamedTuple

from headrace.common.config import INT_MAX, LONG_MAX
from headrace.common.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordError,
    RecordListTooLargeError,
)
from headrace.common.types import Buffer, TopicPartition
from headrace.records import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchRecords,
    Compression,
    EndTransactionMarker,
    RecordBatch,
    read_marker,
    recompress,
    split_batches,
)
from headrace.storage.config import LogConfig
from headrace.storage.producer_state import AppendOrigin, check_client_batch


class PreparedAppend(NamedTuple):
    """Validated batches, ready to be written, and the metadata that the log needs about them."""

    data: Buffer
    batches: list[RecordBatch]
    markers: list[EndTransactionMarker | None]
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int


def _plain(data: Buffer) -> Buffer:
    """Returns the buffer as contiguous bytes, so that `len` is its size. Copies it only if it is not contiguous."""
    view = memoryview(data)
    if not view.c_contiguous:
        return view.tobytes()
    return data if view.ndim == 1 and view.itemsize == 1 else view.cast("B")


def _writable(data: Buffer) -> Buffer:
    """Returns the buffer itself if it is writable, else a copy."""
    plain = _plain(data)
    return bytearray(plain) if memoryview(plain).readonly else plain


def prepare_leader_append(
    data: Buffer,
    *,
    tp: TopicPartition,
    next_offset: int,
    leader_epoch: int,
    config: LogConfig,
    now_ms: int,
    origin: AppendOrigin,
    max_inflated_bytes: int,
) -> PreparedAppend:
    """Validates a producer's batches and assigns offsets, leader epoch and timestamps, in place where possible."""
    if not NO_LEADER_EPOCH <= leader_epoch <= INT_MAX:
        raise ValueError(f"leader epoch {leader_epoch} is out of range: expected {NO_LEADER_EPOCH} to {INT_MAX}")
    data = _writable(data)
    batches = split_batches(data)
    if not batches:
        raise InvalidRecordError("The append contains no record batch; expected at least one")
    codec = config.stored_codec()
    markers: list[EndTransactionMarker | None] = []
    rewritten = False
    for index, batch in enumerate(batches):
        if batch.size_in_bytes > config.max_message_bytes:
            raise MessageSizeTooLargeError(
                f"The record batch size of {batch.size_in_bytes} bytes exceeds the maximum configured value of "
                f"{config.max_message_bytes} (max.message.bytes)"
            )
        batch.check_crc()
        records = _check_batch(tp, batch, config, now_ms, origin, max_inflated_bytes)
        markers.append(read_marker(records) if batch.is_control else None)
        if codec is not None and codec != batch.codec and not batch.is_control:
            batches[index] = _recompress(records, codec, config)
            rewritten = True
    if rewritten:
        data = bytearray().join(batch.raw for batch in batches)
        batches = split_batches(data)
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


def _check_batch(
    tp: TopicPartition,
    batch: RecordBatch,
    config: LogConfig,
    now_ms: int,
    origin: AppendOrigin,
    max_inflated_bytes: int,
) -> BatchRecords:
    if origin is AppendOrigin.CLIENT:
        check_client_batch(batch)
    if batch.count <= 0:
        raise InvalidRecordError(f"The batch header has record count {batch.count}; expected at least 1")
    if batch.is_log_append_time and not config.log_append_time:
        raise InvalidTimestampError(
            "The batch has timestamp type LogAppendTime, but the topic has message.timestamp.type=CreateTime"
        )
    records = batch.records(max_inflated_bytes)
    newest = records.check_appendable()
    keyless = records.without_keys() if config.compact and not batch.is_control else []
    out_of_range: list[tuple[int, int]] = []
    if not config.log_append_time:
        # Some producers set a wrong max timestamp in the header; the time index relies on it.
        batch.patch_max_timestamp(newest, False)
        out_of_range = _out_of_range(newest, records, config, now_ms)
    if keyless or out_of_range:
        raise _rejected(tp, keyless, out_of_range, config, now_ms)
    return records


def _out_of_range(newest: int, records: BatchRecords, config: LogConfig, now_ms: int) -> list[tuple[int, int]]:
    """Returns index and timestamp of the records whose timestamps the topic does not accept."""
    newest_allowed = now_ms + config.message_timestamp_after_max_ms
    oldest_allowed = now_ms - config.message_timestamp_before_max_ms
    if newest <= newest_allowed and config.message_timestamp_before_max_ms == LONG_MAX:
        return []
    return [
        (index, timestamp)
        for index, timestamp in enumerate(records.timestamps())
        if timestamp != NO_TIMESTAMP and not oldest_allowed <= timestamp <= newest_allowed
    ]


def _rejected(
    tp: TopicPartition, keyless: list[int], out_of_range: list[tuple[int, int]], config: LogConfig, now_ms: int
) -> InvalidRecordError | InvalidTimestampError:
    """Returns the error for a batch with invalid records, in Kafka's words. It names each of them (KIP-467)."""
    oldest, newest = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
    messages = {
        index: f"Timestamp {timestamp} of message with offset {index} is out of range. The timestamp should be within "
        f"[{oldest}, {newest}]"
        for index, timestamp in out_of_range
    }
    messages |= dict.fromkeys(keyless, f"Compacted topic cannot accept message without key in topic partition {tp}")
    record_errors = [RecordError(index, message) for index, message in sorted(messages.items())]
    error: InvalidRecordError | InvalidTimestampError
    if set(messages).issubset(keyless):
        first = ", ".join(
            f"RecordError(batchIndex={each.batch_index}, message='{each.message}')" for each in record_errors[:3]
        )
        error = InvalidRecordError(
            f"One or more records have been rejected due to {len(record_errors)} record errors in total, and only "
            f"showing the first three errors at most: [{first}]"
        )
    else:
        error = InvalidTimestampError("One or more records have been rejected due to invalid timestamp")
    error.record_errors = record_errors
    return error


def _recompress(records: BatchRecords, codec: Compression, config: LogConfig) -> RecordBatch:
    batch = RecordBatch(recompress(records, codec, config.level_of(codec)))
    if batch.size_in_bytes > config.max_message_bytes:
        raise MessageSizeTooLargeError(
            f"The record batch size of {batch.size_in_bytes} bytes after compression with compression.type="
            f"{codec.name.lower()} exceeds the maximum configured value of {config.max_message_bytes} "
            "(max.message.bytes)"
        )
    return batch


def prepare_follower_append(data: Buffer, next_offset: int) -> PreparedAppend:
    """Validates a leader's batches. Their offsets must increase and start at or after the log end offset."""
    data = _plain(data)
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
