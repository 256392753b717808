import struct
from collections.abc import Callable

import pytest
from tests.support.storage.logs import (
    START_MS,
    MakeLog,
    append,
    batches_of,
    contents,
    make_batch,
    make_batch_at,
    make_marker,
    records_of,
)

from headrace.common.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)
from headrace.records import BatchBuilder, Compression, ControlType, RecordBatch, crc32c, encode_rows
from headrace.storage.log import Log
from headrace.storage.producer_state import AppendOrigin

HOUR_MS = 3_600_000
REJECTED_BY_TIME = "^One or more records have been rejected due to invalid timestamp$"


def with_crc(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


def refuse(log: Log, data: bytes | bytearray, error: type[KafkaError], named: str) -> KafkaError:
    """Checks that the append is rejected and the log is unchanged. Returns the error."""
    before = (log.log_end_offset, log.size_in_bytes, len(log.producers.entries), log.epochs.entries)
    with pytest.raises(error, match=named) as refused:
        log.append_as_leader(data, 3)
    assert type(refused.value) is error
    assert (log.log_end_offset, log.size_in_bytes, len(log.producers.entries), log.epochs.entries) == before
    return refused.value


def test_assigns_offsets_and_leader_epoch(make_log: MakeLog) -> None:
    log = make_log()
    append(log, count=2)
    result = log.append_as_leader(make_batch(3, at=START_MS + 7, base_offset=999), 4)
    assert (result.base_offset, result.last_offset) == (2, 4)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (START_MS + 7, 4)
    assert (result.log_append_time_ms, result.log_start_offset, result.duplicate) == (-1, 0, False)
    assert log.log_end_offset == 5
    assert [(batch.base_offset, batch.leader_epoch) for batch in batches_of(log)] == [(0, 0), (2, 4)]
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries] == [(0, 0), (4, 2)]
    for batch in batches_of(log):
        batch.check_crc()


def test_appends_several_batches(make_log: MakeLog) -> None:
    log = make_log()
    result = log.append_as_leader(make_batch(2) + make_batch(3, at=START_MS + 9) + make_batch(), 0)
    assert (result.base_offset, result.last_offset) == (0, 5)
    assert (result.max_timestamp, result.offset_of_max_timestamp) == (START_MS + 9, 4)
    assert [(batch.base_offset, batch.count) for batch in batches_of(log)] == [(0, 2), (2, 3), (5, 1)]


def test_rejects_empty_append(make_log: MakeLog) -> None:
    refuse(make_log(), b"", InvalidRecordError, "The append contains no record batch")
    with pytest.raises(InvalidRecordError, match="contains no record batch"):
        make_log().append_as_follower(b"")


def test_rejects_batch_larger_than_max_message_bytes(make_log: MakeLog) -> None:
    data = make_batch(10)
    log = make_log({"max.message.bytes": len(data)})
    append(log, bytes(data))
    refuse(
        make_log({"max.message.bytes": len(data) - 1}),
        data,
        MessageSizeTooLargeError,
        f"size of {len(data)} bytes exceeds the maximum configured value of {len(data) - 1}",
    )


def test_rejects_append_larger_than_segment_bytes(make_log: MakeLog) -> None:
    data = make_batch(10) + make_batch(10)
    assert len(data) > 1024
    refuse(
        make_log({"segment.bytes": 1024}),
        data,
        RecordListTooLargeError,
        f"size of {len(data)} bytes exceeds the maximum configured segment size of 1024",
    )


def test_rejects_wrong_crc(make_log: MakeLog) -> None:
    data = make_batch()
    data[-1] ^= 1
    refuse(make_log(), data, CorruptRecordError, "computed crc")
    with pytest.raises(CorruptRecordError, match="computed crc"):
        make_log().append_as_follower(data)


def test_validates_second_batch(make_log: MakeLog) -> None:
    data = make_batch() + make_batch()
    data[-1] ^= 1
    refuse(make_log(), data, CorruptRecordError, "computed crc")


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_rejects_other_magic(make_log: MakeLog, magic: int) -> None:
    data = make_batch()
    data[16] = magic
    error = UnsupportedForMessageFormatError if magic < 2 else CorruptRecordError
    refuse(make_log(), data, error, f"magic {magic}")


def test_rejects_incomplete_batch(make_log: MakeLog) -> None:
    refuse(make_log(), make_batch()[:-1], CorruptRecordError, "byte")


def test_rejects_control_batch_from_client(make_log: MakeLog) -> None:
    refuse(
        make_log(),
        make_marker(ControlType.COMMIT, 1),
        InvalidRecordError,
        "Clients are not allowed to write control records",
    )


def test_rejects_transactional_batch_without_producer_id(make_log: MakeLog) -> None:
    refuse(
        make_log(), make_batch(transactional=True), InvalidRecordError, "A transactional batch must have a producer id"
    )


def test_rejects_batch_without_records(make_log: MakeLog) -> None:
    data = make_batch()[:61]
    struct.pack_into(">i", data, 8, 61 - 12)
    struct.pack_into(">i", data, 57, 0)
    refuse(make_log(), with_crc(data), InvalidRecordError, "The batch header has record count 0; expected at least 1")


def test_rejects_null_key_on_compacted_topic(make_log: MakeLog) -> None:
    log = make_log({"cleanup.policy": "compact"})
    append(log)
    error = refuse(
        log,
        encode_rows([(key, b"", START_MS, ()) for key in (b"key", None, b"key", None)]),
        InvalidRecordError,
        "One or more records have been rejected due to 2 record errors in total, and only showing the first three "
        r"errors at most: \[RecordError\(batchIndex=1, message='Compacted topic cannot accept message without key in",
    )
    message = f"Compacted topic cannot accept message without key in topic partition {log.tp}"
    assert error.record_errors == [(1, message), (3, message)]
    append(make_log(), key=None)


def test_names_at_most_three_invalid_records_in_the_message(make_log: MakeLog) -> None:
    log = make_log({"cleanup.policy": "compact"})
    error = refuse(log, encode_rows([(None, b"", START_MS, ())] * 5), InvalidRecordError, "due to 5 record errors")
    assert str(error).count("batchIndex=") == 3
    assert [record.batch_index for record in error.record_errors] == list(range(5))


def test_invalid_timestamp_outweighs_missing_key(make_log: MakeLog) -> None:
    log = make_log({"cleanup.policy": "compact"})
    rows = [(None, b"", START_MS, ()), (b"k", b"", START_MS + 2 * HOUR_MS, ()), (None, b"", START_MS + 2 * HOUR_MS, ())]
    error = refuse(log, encode_rows(rows), InvalidTimestampError, "rejected due to invalid timestamp")
    assert [record.batch_index for record in error.record_errors] == [0, 1, 2]
    assert ["without key" in record.message for record in error.record_errors] == [True, False, True]


# ---- time


@pytest.mark.parametrize(("ahead_ms", "taken"), [(HOUR_MS, True), (HOUR_MS + 1, False)])
def test_limits_timestamps_ahead_of_clock(make_log: MakeLog, ahead_ms: int, taken: bool) -> None:
    data = make_batch_at(START_MS, START_MS + ahead_ms)
    if taken:
        append(make_log(), data)
    else:
        error = refuse(make_log({"message.timestamp.before.max.ms": 5}), data, InvalidTimestampError, REJECTED_BY_TIME)
        message = (
            f"Timestamp {START_MS + ahead_ms} of message with offset 1 is out of range. The timestamp should be within "
            f"[{START_MS - 5}, {START_MS + HOUR_MS}]"
        )
        assert error.record_errors == [(1, message)]


@pytest.mark.parametrize(("behind_ms", "taken"), [(1000, True), (1001, False)])
def test_limits_timestamps_behind_clock(make_log: MakeLog, behind_ms: int, taken: bool) -> None:
    log = make_log({"message.timestamp.before.max.ms": 1000})
    data = make_batch_at(START_MS, START_MS - behind_ms, START_MS)
    if taken:
        append(log, data)
    else:
        error = refuse(log, data, InvalidTimestampError, REJECTED_BY_TIME)
        message = (
            f"Timestamp {START_MS - behind_ms} of message with offset 1 is out of range. The timestamp should be "
            f"within [{START_MS - 1000}, {START_MS + HOUR_MS}]"
        )
        assert error.record_errors == [(1, message)]


def test_records_without_timestamp_have_no_limits(make_log: MakeLog) -> None:
    log = make_log({"message.timestamp.before.max.ms": 1000})
    assert append(log, make_batch_at(-1, -1)).max_timestamp == -1


def test_log_append_time_ignores_timestamp_limits(make_log: MakeLog) -> None:
    log = make_log({"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": 1000})
    assert append(log, make_batch_at(5, START_MS + 10 * HOUR_MS)).max_timestamp == START_MS
    assert len(records_of(log)) == 2


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_log_append_time_sets_timestamps(make_log: MakeLog, codec: Compression) -> None:
    log = make_log({"message.timestamp.type": "LogAppendTime"})
    result = append(log, make_batch_at(5, 9, codec=codec))
    assert (result.log_append_time_ms, result.max_timestamp) == (START_MS, START_MS)
    (batch,) = batches_of(log)
    batch.check_crc()
    assert batch.is_log_append_time
    assert [(record.timestamp, record.timestamp_type) for record in records_of(log)] == [(START_MS, 1)] * 2


def test_rejects_log_append_time_from_producer(make_log: MakeLog) -> None:
    builder = BatchBuilder(log_append_time=True)
    builder.append(b"key", b"", START_MS)
    refuse(
        make_log(),
        builder.build(),
        InvalidTimestampError,
        "timestamp type LogAppendTime, but the topic has message.timestamp.type=CreateTime",
    )


@pytest.mark.parametrize("claimed", [0, START_MS - 1, START_MS + 10 * HOUR_MS])
def test_corrects_wrong_max_timestamp(make_log: MakeLog, claimed: int) -> None:
    data = make_batch_at(START_MS - 50, START_MS, START_MS - 20)
    struct.pack_into(">q", data, 35, claimed)
    log = make_log()
    assert append(log, with_crc(data)).max_timestamp == START_MS
    (batch,) = batches_of(log)
    batch.check_crc()
    assert batch.max_timestamp == START_MS
    assert log.find_timestamp(START_MS) == (START_MS, 1)


# ---- compression


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("sent", [Compression.NONE, Compression.GZIP])
def test_recompresses_with_topic_codec(make_log: MakeLog, name: str, sent: Compression) -> None:
    log = make_log({"compression.type": name})
    append(log, make_batch(5, codec=sent) + make_batch(3, codec=Compression.ZSTD))
    stored = log.config.stored_codec()
    assert [(batch.codec, batch.base_offset, batch.count) for batch in batches_of(log)] == [
        (stored, 0, 5),
        (stored, 5, 3),
    ]
    for batch in batches_of(log):
        batch.check_crc()
    assert contents(log) == [(offset, b"key", b"x" * 50) for offset in range(8)]


@pytest.mark.parametrize("sent", list(Compression))
def test_keeps_producer_codec(make_log: MakeLog, sent: Compression) -> None:
    log = make_log()
    append(log, make_batch(5, codec=sent))
    assert [batch.codec for batch in batches_of(log)] == [sent]


def test_uses_configured_compression_level(make_log: MakeLog) -> None:
    words = [b"%d bottles of %d" % (number * 7919 % 1000, number * 104729 % 1000) for number in range(400)]
    data = encode_rows([(b"key", word, START_MS, ()) for word in words])
    sizes = []
    for level in (1, 9):
        log = make_log({"compression.type": "gzip", "compression.gzip.level": level})
        log.truncate_to(0)
        append(log, bytes(data))
        sizes.append(log.size_in_bytes)
        log.close()
    assert sizes[0] > sizes[1]


def test_does_not_compress_markers(make_log: MakeLog) -> None:
    log = make_log({"compression.type": "gzip"})
    log.append_as_leader(make_marker(ControlType.COMMIT, 1), 0, AppendOrigin.COORDINATOR)
    assert [batch.codec for batch in batches_of(log)] == [Compression.NONE]


def test_rejects_batch_that_is_too_large_after_recompression(make_log: MakeLog) -> None:
    data = make_batch(100, value=b"x" * 100, codec=Compression.GZIP)
    refuse(
        make_log({"compression.type": "uncompressed", "max.message.bytes": 2000}),
        data,
        MessageSizeTooLargeError,
        "with compression.type=none exceeds the maximum configured value of 2000",
    )
    stored = len(make_batch(100, value=b"x" * 100))
    log = make_log({"compression.type": "uncompressed", "max.message.bytes": stored})
    log.append_as_leader(data, 0)
    assert log.size_in_bytes == stored


# ---- buffers


@pytest.mark.parametrize("wrap", [bytes, lambda data: memoryview(bytes(data))], ids=["bytes", "view"])
def test_copies_read_only_buffer(make_log: MakeLog, wrap: Callable[[bytearray], bytes | memoryview]) -> None:
    log = make_log({"message.timestamp.type": "LogAppendTime"})
    data = wrap(make_batch(base_offset=55))
    before = bytes(data)
    log.append_as_leader(data, 3)
    assert bytes(data) == before
    assert batches_of(log)[0].base_offset == 0


@pytest.mark.parametrize("wrap", [lambda data: data, memoryview], ids=["bytearray", "view"])
def test_patches_writable_buffer_in_place(
    make_log: MakeLog, wrap: Callable[[bytearray], bytearray | memoryview]
) -> None:
    log = make_log()
    data = make_batch(base_offset=55)
    log.append_as_leader(wrap(data), 3)
    assert bytes(data) == bytes(batches_of(log)[0].raw)
    assert (RecordBatch(data).base_offset, RecordBatch(data).leader_epoch) == (0, 3)


# ---- followers


def test_follower_keeps_offsets_and_epochs_of_leader(make_log: MakeLog) -> None:
    log = make_log()
    data = make_batch(2, base_offset=0, leader_epoch=1) + make_batch(2, base_offset=7, leader_epoch=4)
    result = log.append_as_follower(bytes(data))
    assert (result.base_offset, result.last_offset) == (0, 8)
    assert b"".join(bytes(batch.raw) for batch in batches_of(log)) == data
    assert log.end_offset_for_epoch(1) == (1, 7)
    assert log.log_end_offset == 9


@pytest.mark.parametrize(
    ("bases", "named"),
    [
        ((3,), "has base offset 3, which is below the expected next offset 4"),
        ((4, 4), "has base offset 4, which is below the expected next offset 6"),
    ],
)
def test_follower_rejects_overlapping_offsets(make_log: MakeLog, bases: tuple[int, ...], named: str) -> None:
    log = make_log()
    append(log, count=4)
    with pytest.raises(CorruptRecordError, match=named):
        log.append_as_follower(b"".join(make_batch(2, base_offset=base) for base in bases))
    assert log.log_end_offset == 4


def test_follower_skips_checks_of_leader(make_log: MakeLog) -> None:
    log = make_log({"cleanup.policy": "compact", "max.message.bytes": 10, "message.timestamp.before.max.ms": 0})
    log.append_as_follower(make_batch(key=None, at=5, producer_id=1, producer_epoch=0, base_sequence=77))
    log.append_as_follower(make_batch(base_offset=5, producer_id=1, producer_epoch=0, base_sequence=3))
    assert log.producers.entries[1].last_sequence == 3


def test_closed_log_raises(make_log: MakeLog) -> None:
    log = make_log()
    append(log)
    log.close()
    log.close()
    with pytest.raises(KafkaStorageError, match="The log for partition orders-0 is closed"):
        append(log)
    with pytest.raises(KafkaStorageError, match="The log for partition orders-0 is closed"):
        log.read(0, 100)
