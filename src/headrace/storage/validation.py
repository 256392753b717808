"""Validation of a producer's batches. Nothing here changes the log.

`validate_batches` uses only its arguments. So a batch that is expensive to validate, because it is large uncompressed,
is validated in a thread: the caller catches `LargeBatchError` and calls its `validate` with a copy of the bytes.
"""

from typing import NamedTuple

from headrace.common.config import LONG_MAX
from headrace.common.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordError,
)
from headrace.common.types import Buffer, TopicPartition
from headrace.records import (
    BatchRecords,
    Compression,
    EndTransactionMarker,
    RecordBatch,
    read_marker,
    recompress,
    split_batches,
)
from headrace.storage.config import LogConfig
from headrace.storage.context import LogContext
from headrace.storage.large_batches import LargeBatchError
from headrace.storage.producer_state import AppendOrigin, check_client_batch

MAX_RECORD_ERRORS = 1_000
"""The number of invalid records that an error names. A batch of a few KB can have many more."""


class ValidatedBatches(NamedTuple):
    """The batches of one append, in writable memory and with the topic's codec."""

    data: Buffer
    batches: list[RecordBatch]
    markers: list[EndTransactionMarker | None]


def plain(data: Buffer) -> Buffer:
    """Returns the buffer as contiguous bytes, so that `len` is its size. Copies it only if it is not contiguous."""
    view = memoryview(data)
    if not view.c_contiguous:
        return view.tobytes()
    return data if view.ndim == 1 and view.itemsize == 1 else view.cast("B")


def _writable(data: Buffer) -> Buffer:
    """Returns the buffer itself if it is writable, else a copy."""
    contiguous = plain(data)
    return bytearray(contiguous) if memoryview(contiguous).readonly else contiguous


def validate_batches(
    data: Buffer,
    tp: TopicPartition,
    config: LogConfig,
    context: LogContext,
    now_ms: int,
    origin: AppendOrigin,
    max_inline_bytes: int | None,
) -> ValidatedBatches:
    """Checks a producer's batches and changes them to the topic's codec, in place where possible.

    Raises LargeBatchError if a batch is larger than `max_inline_bytes` uncompressed. None means the topic's limit.
    """
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
        max_bytes = context.max_inflated_bytes(config) if max_inline_bytes is None else max_inline_bytes
        try:
            records = _check_batch(tp, batch, config, now_ms, origin, max_bytes)
        except InflatedTooLargeError as error:
            if max_inline_bytes is not None:
                raise LargeBatchError(
                    lambda copy: validate_batches(copy, tp, config, context, now_ms, origin, None)
                ) from None
            max_inflated_bytes = context.max_inflated_bytes(config)
            raise MessageSizeTooLargeError(
                f"The record batch of {batch.size_in_bytes} bytes is larger than {max_inflated_bytes} bytes "
                f"uncompressed, {max_inflated_bytes // config.max_message_bytes} times the maximum configured value of "
                f"{config.max_message_bytes} (max.message.bytes): {error}"
            ) from error
        markers.append(read_marker(records) if batch.is_control else None)
        if codec is not None and codec != batch.codec and not batch.is_control:
            batches[index] = _recompress(records, codec, config)
            rewritten = True
    if rewritten:
        data = bytearray().join(batch.raw for batch in batches)
        batches = split_batches(data)
    return ValidatedBatches(data, batches, markers)


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
    keyless = records.without_keys(MAX_RECORD_ERRORS) if config.compact and not batch.is_control else []
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
    return records.outside(oldest_allowed, min(newest_allowed, LONG_MAX), MAX_RECORD_ERRORS)


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
