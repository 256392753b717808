"""What happens to bytes before they are written: checking, and as leader the assigning of offsets, epoch and time.

Nothing here touches the log. A leader's append trusts nothing (magic, length, CRC, every record); a follower's has been
checked by its leader, so length, CRC and the order of offsets are enough.
"""

from typing import NamedTuple

from headrace.common.config import INT_MAX, LONG_MAX
from headrace.common.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from headrace.common.types import Buffer
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
    """Bytes that may be written, and what the log must know of them."""

    data: Buffer
    batches: list[RecordBatch]
    markers: list[EndTransactionMarker | None]
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int


def _plain(data: Buffer) -> Buffer:
    """The buffer as single bytes in a row, so that its length is its size; a copy only if it has gaps."""
    view = memoryview(data)
    if not view.c_contiguous:
        return view.tobytes()
    return data if view.ndim == 1 and view.itemsize == 1 else view.cast("B")


def _writable(data: Buffer) -> Buffer:
    """The bytes themselves if they may be patched, else a copy."""
    plain = _plain(data)
    return bytearray(plain) if memoryview(plain).readonly else plain


def prepare_leader_append(
    data: Buffer,
    *,
    next_offset: int,
    leader_epoch: int,
    config: LogConfig,
    now_ms: int,
    origin: AppendOrigin,
    max_inflated_bytes: int,
) -> PreparedAppend:
    """Checks batches as they come from a producer and makes them part of this log, in place where that is possible."""
    if not NO_LEADER_EPOCH <= leader_epoch <= INT_MAX:
        raise ValueError(f"a leader epoch is {NO_LEADER_EPOCH} to {INT_MAX}, not {leader_epoch}")
    data = _writable(data)
    batches = split_batches(data)
    if not batches:
        raise InvalidRecordError("an append needs at least one record batch, got no bytes")
    codec = config.stored_codec()
    markers: list[EndTransactionMarker | None] = []
    rewritten = False
    for index, batch in enumerate(batches):
        if batch.size_in_bytes > config.max_message_bytes:
            raise MessageSizeTooLargeError(
                f"the record batch has {batch.size_in_bytes} bytes, max.message.bytes is {config.max_message_bytes}"
            )
        batch.check_crc()
        records = _check_batch(batch, config, now_ms, origin, max_inflated_bytes)
        markers.append(read_marker(records) if batch.is_control else None)
        if codec is not None and codec != batch.codec and not batch.is_control:
            batches[index] = _recompress(records, codec, config)
            rewritten = True
    if rewritten:
        data = bytearray().join(batch.raw for batch in batches)
        batches = split_batches(data)
    if len(data) > config.segment_bytes:
        raise RecordListTooLargeError(
            f"the append has {len(data)} bytes, more than a segment holds: segment.bytes is {config.segment_bytes}"
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
    batch: RecordBatch, config: LogConfig, now_ms: int, origin: AppendOrigin, max_inflated_bytes: int
) -> BatchRecords:
    if origin is AppendOrigin.CLIENT:
        check_client_batch(batch)
    if batch.count <= 0:
        raise InvalidRecordError(f"a record batch needs at least one record, the header says {batch.count}")
    if batch.is_log_append_time and not config.log_append_time:
        raise InvalidTimestampError("a producer may not send batches with LogAppendTime to a topic with CreateTime")
    records = batch.records(max_inflated_bytes)
    newest = records.check_appendable(require_keys=config.compact and not batch.is_control)
    if not config.log_append_time:
        # Some producers set the header wrong; the log's time index relies on it.
        batch.patch_max_timestamp(newest, False)
        _check_timestamps(batch, records, config, now_ms)
    return records


def _check_timestamps(batch: RecordBatch, records: BatchRecords, config: LogConfig, now_ms: int) -> None:
    newest_allowed = now_ms + config.message_timestamp_after_max_ms
    if batch.max_timestamp > newest_allowed:
        raise InvalidTimestampError(
            f"timestamp {batch.max_timestamp} is more than message.timestamp.after.max.ms="
            f"{config.message_timestamp_after_max_ms} ahead of the broker's {now_ms}"
        )
    if config.message_timestamp_before_max_ms < LONG_MAX:
        oldest = min((at for at in records.timestamps() if at != NO_TIMESTAMP), default=now_ms)
        if now_ms - oldest > config.message_timestamp_before_max_ms:
            raise InvalidTimestampError(
                f"timestamp {oldest} is more than message.timestamp.before.max.ms="
                f"{config.message_timestamp_before_max_ms} behind the broker's {now_ms}"
            )


def _recompress(records: BatchRecords, codec: Compression, config: LogConfig) -> RecordBatch:
    batch = RecordBatch(recompress(records, codec, config.level_of(codec)))
    if batch.size_in_bytes > config.max_message_bytes:
        raise MessageSizeTooLargeError(
            f"the record batch has {batch.size_in_bytes} bytes with compression.type={codec.name.lower()}, "
            f"max.message.bytes is {config.max_message_bytes}"
        )
    return batch


def prepare_follower_append(data: Buffer, next_offset: int) -> PreparedAppend:
    """Checks batches as they come from a leader: offsets stay, and must lie behind the log's end in growing order."""
    data = _plain(data)
    batches = split_batches(data)
    if not batches:
        raise InvalidRecordError("an append needs at least one record batch, got no bytes")
    expected = next_offset
    for batch in batches:
        batch.check_crc()
        if batch.base_offset < expected:
            raise CorruptRecordError(
                f"batch at byte {batch.position} begins with offset {batch.base_offset}, the log ends at {expected}",
                batch.position,
            )
        if batch.last_offset_delta < 0 or batch.next_offset <= batch.base_offset:
            raise CorruptRecordError(
                f"batch at byte {batch.position} has base offset {batch.base_offset} and last offset delta "
                f"{batch.last_offset_delta}, which no log can count",
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
