"""The view of a batch: its fields, its buffer, and patching."""

import gc
import mmap
import weakref
from pathlib import Path

import pytest
from tests.support.records import reference_batch as reference

from headrace.common.errors import CorruptRecordError, InvalidRecordError
from headrace.records import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchBuilder,
    BatchRecords,
    Compression,
    RecordBatch,
    decode_rows,
    encode_empty_batch,
    encode_rows,
    recompress,
    split_batches,
    walk_headers,
)
from headrace.records.arrow import decode_arrow

ROWS = [(b"key", b"value", 1000, [("name", b"data")]), (None, b"other", 1005, None), (b"key", None, 1002, None)]


class ByteArray(bytearray):
    """A buffer that can be weakly referenced."""


def test_sizes_of_the_format() -> None:
    assert (BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES) == (reference.HEADER_BYTES, reference.OFFSET_AND_LENGTH_BYTES)


def test_batch_fields() -> None:
    buffer = encode_rows(
        ROWS,
        base_offset=70,
        producer_id=9,
        producer_epoch=2,
        base_sequence=30,
        transactional=True,
        leader_epoch=4,
        codec=Compression.GZIP,
    )
    batch = RecordBatch(b"elsewhere" + buffer, 9)
    assert (batch.position, batch.size_in_bytes) == (9, len(buffer))
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.last_offset_delta) == (70, 72, 73, 2)
    assert (batch.base_timestamp, batch.max_timestamp, batch.count) == (1000, 1005, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (9, 2, 30, 32)
    assert (batch.leader_epoch, batch.magic, batch.codec) == (4, 2, Compression.GZIP)
    assert (batch.is_transactional, batch.is_control, batch.is_log_append_time) == (True, False, False)
    assert bytes(batch.raw) == buffer
    assert repr(batch) == f"RecordBatch(offsets 70 to 72, 3 records, {len(buffer)} bytes at 9)"


@pytest.mark.parametrize(
    ("base_sequence", "last_sequence"),
    [(-1, -1), (0, 2), (2**31 - 4, 2**31 - 2), (2**31 - 3, 2**31 - 1), (2**31 - 2, 0), (2**31 - 1, 1)],
)
def test_sequences_wrap_to_zero(base_sequence: int, last_sequence: int) -> None:
    assert RecordBatch(encode_rows(ROWS, base_sequence=base_sequence)).last_sequence == last_sequence


def test_delete_horizon_replaces_base_timestamp() -> None:
    row = reference.Row(b"key", None, 1000, (), 0)
    payload = reference.records_bytes([row], 0, 777)
    bit = reference.DELETE_HORIZON_BIT
    batch = RecordBatch(reference.batch_bytes(payload, count=1, attributes=bit, base_timestamp=777, max_timestamp=1000))
    assert batch.delete_horizon_ms == 777
    assert batch.records().timestamps() == [1000]
    assert RecordBatch(recompress(batch.records(), Compression.ZSTD)).delete_horizon_ms == 777
    empty = RecordBatch(encode_empty_batch(batch))
    assert (empty.delete_horizon_ms, empty.base_timestamp, empty.max_timestamp) == (None, -1, 1000)


def test_batch_references_and_releases_its_buffer() -> None:
    buffer = ByteArray(encode_rows(ROWS))
    gone = weakref.ref(buffer)
    batch = RecordBatch(buffer)
    records = batch.records()
    del batch
    with pytest.raises(BufferError):
        buffer.append(0)
    del buffer
    gc.collect()
    assert decode_rows(records)[0].value == b"value"
    assert gone() is not None
    del records
    gc.collect()
    assert gone() is None


def test_failed_construction_releases_buffer() -> None:
    buffer = encode_rows(ROWS)
    for broken_at in (16, 60):
        broken = bytearray(buffer)
        broken[broken_at] = 0xFF
        with pytest.raises(CorruptRecordError, match=r"magic -1|claims 255 records"):
            RecordBatch(broken).records()
        broken.append(0)


def test_memoryview_keeps_batch_alive() -> None:
    view = RecordBatch(encode_rows(ROWS)).raw
    gc.collect()
    assert view.readonly
    assert RecordBatch(view).records().offsets() == [0, 1, 2]


def test_accepts_any_buffer(tmp_path: Path) -> None:
    encoded = encode_rows(ROWS)
    path = tmp_path / "batch"
    path.write_bytes(encoded)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for buffer in (bytes(encoded), encoded, memoryview(encoded), mapped):
            batch = RecordBatch(buffer)
            batch.check_crc()
            assert batch.records().offsets() == [0, 1, 2]
            del batch


def test_rejects_patch_of_read_only_batch() -> None:
    for buffer in (bytes(encode_rows(ROWS)), memoryview(encode_rows(ROWS)).toreadonly()):
        batch = RecordBatch(buffer)
        before = bytes(buffer)
        for patch in (
            lambda batch: batch.patch_base_offset(5),
            lambda batch: batch.patch_leader_epoch(5),
            lambda batch: batch.patch_max_timestamp(5, True),
            lambda batch: batch.patch_producer(5, 5, 5, True),
        ):
            with pytest.raises(BufferError, match="read-only buffer"):
                patch(batch)
        assert bytes(buffer) == before


def test_header_only_view() -> None:
    whole = encode_rows(ROWS, base_offset=7)
    batch = RecordBatch(bytearray(b"elsewhere" + whole[:61]), 9, header_only=True)
    assert (batch.base_offset, batch.last_offset, batch.count, batch.max_timestamp) == (7, 9, 3, 1005)
    assert (batch.position, batch.size_in_bytes) == (9, len(whole))
    assert encode_empty_batch(batch) == encode_empty_batch(RecordBatch(whole))
    for action in (
        batch.check_crc,
        batch.records,
        lambda: batch.raw,
        lambda: bytes(memoryview(batch)),
        lambda: batch.patch_base_offset(5),
        lambda: batch.patch_leader_epoch(5),
        lambda: batch.patch_max_timestamp(5, True),
        lambda: batch.patch_producer(5, 5, 5, True),
        lambda: decode_arrow([batch]),
    ):
        with pytest.raises(ValueError, match="header only"):
            action()
    assert batch.base_offset == 7


def test_rejects_incomplete_or_invalid_header() -> None:
    whole = encode_rows(ROWS)
    with pytest.raises(CorruptRecordError, match=r"^batch at byte 0 is cut short: 60 bytes"):
        RecordBatch(whole[:60], header_only=True)
    whole[8:12] = bytes(4)
    with pytest.raises(CorruptRecordError, match=r"^batch at byte 0 has length 0"):
        RecordBatch(whole, header_only=True)


def test_patch_changes_only_this_batch() -> None:
    one = encode_rows(ROWS)
    buffer = one + one + one
    first, second, third = split_batches(buffer)
    second.patch_base_offset(100)
    second.patch_leader_epoch(3)
    second.patch_max_timestamp(5000, True)
    second.patch_producer(1, 2, 3, True)
    assert bytes(first.raw) == bytes(third.raw) == one
    second.check_crc()
    assert second.records().timestamps() == [5000, 5000, 5000]
    assert [record.timestamp_type for record in decode_rows(second.records())] == [1, 1, 1]
    second.patch_max_timestamp(1005, False)
    assert second.records().timestamps() == [1000, 1005, 1002]
    second.check_crc()


def test_scan_results_of_an_empty_batch() -> None:
    records = RecordBatch(encode_empty_batch(RecordBatch(encode_rows(ROWS)))).records()
    assert (len(records), records.offsets(), records.timestamps(), records.inflated_bytes) == (0, [], [], 0)
    assert records.max_timestamp() is None
    assert records.first_at_or_after(0) is None
    with pytest.raises(IndexError, match="record 0 of 0"):
        records.key(0)


@pytest.mark.parametrize("index", [-1, 3, 2**40])
def test_rejects_index_out_of_range(index: int) -> None:
    records = RecordBatch(encode_rows(ROWS)).records()
    with pytest.raises(IndexError, match=f"record {index} of 3"):
        records.key(index)
    with pytest.raises(IndexError, match=f"record {index} of 3"):
        records.value(index)


def test_first_of_equal_timestamps() -> None:
    records = RecordBatch(encode_rows([(None, b"", stamp, None) for stamp in (5, 9, 9, 7)], base_offset=10)).records()
    assert records.max_timestamp() == (9, 11)
    assert records.first_at_or_after(9) == (9, 11)
    assert records.first_at_or_after(9, min_offset=12) == (9, 12)
    assert records.first_at_or_after(6, min_offset=13) == (7, 13)
    assert records.first_at_or_after(10) is None


def test_records_require_batch() -> None:
    with pytest.raises(TypeError):
        BatchRecords(None)


@pytest.mark.parametrize("allow_partial", [False, True])
def test_splits_empty_buffer(allow_partial: bool) -> None:
    assert split_batches(b"", 0, allow_partial) == []
    assert split_batches(b"abc", 3, allow_partial) == []
    assert split_batches(b"abc", 100, allow_partial) == []


def test_walks_headers() -> None:
    first, second = encode_rows(ROWS), encode_rows(ROWS, base_offset=3)
    buffer = first + second
    assert walk_headers(buffer, 0, 0) == (0, len(first), 0, 2, 1005)
    assert walk_headers(buffer, 0, 2) == (0, len(first), 0, 2, 1005)
    assert walk_headers(buffer, 0, 3) == (len(first), len(second), 3, 5, 1005)
    assert walk_headers(buffer, len(first), 0) == (len(first), len(second), 3, 5, 1005)
    assert walk_headers(buffer, 0, 6) == len(buffer)
    assert walk_headers(buffer, len(buffer) + 7, 0) == len(buffer) + 7
    assert walk_headers(b"", 0, 0) == 0


# ---- validation by the leader


def test_accepts_valid_batch() -> None:
    assert RecordBatch(encode_rows(ROWS)).records().check_appendable() == 1005
    keyed = encode_rows([(b"k", None, -1, None)])
    assert RecordBatch(keyed).records().check_appendable() == -1


def test_finds_records_without_keys() -> None:
    rows = [(b"k", None, -1, None), (None, b"v", -1, None), (b"", None, -1, None), (None, None, -1, None)]
    records = RecordBatch(encode_rows(rows)).records()
    assert records.without_keys(10) == [1, 3]
    assert records.without_keys(1) == [1]


def test_finds_records_outside_of_a_range_of_timestamps() -> None:
    records = RecordBatch(encode_rows([(None, b"v", at, None) for at in (10, -1, 5, 20, 21)])).records()
    assert records.outside(10, 20, 10) == [(2, 5), (4, 21)]
    assert records.outside(10, 20, 1) == [(2, 5)]


def test_rejects_gap_between_offsets() -> None:
    builder = BatchBuilder()
    builder.append(b"", b"", 0)
    builder.append(b"", b"", 0, offset=2)
    with pytest.raises(InvalidRecordError, match=r"^Batch has 2 records but last offset delta 2$"):
        RecordBatch(builder.build()).records().check_appendable()
    rows = [reference.Row(b"", b"", 0, (), offset) for offset in (1, 2)]
    batch = reference.batch_bytes(reference.records_bytes(rows, 0, 0), count=2, last_offset_delta=2)
    with pytest.raises(InvalidRecordError, match="last offset delta 2"):
        RecordBatch(batch).records().check_appendable()


def test_rejects_empty_batch() -> None:
    records = RecordBatch(reference.batch_bytes(b"", count=0)).records()
    with pytest.raises(InvalidRecordError, match=r"^Batch has 0 records but last offset delta 0$"):
        records.check_appendable()


@pytest.mark.parametrize("claimed", [-1, 1004, 1006, 2**63 - 1])
def test_max_timestamp_comes_from_records(claimed: int) -> None:
    batch = RecordBatch(encode_rows(ROWS))
    batch.patch_max_timestamp(claimed, False)
    assert batch.records().check_appendable() == 1005
    batch.patch_max_timestamp(claimed, True)
    assert batch.records().check_appendable() == claimed


@pytest.mark.parametrize("size", [0, 1, 100, 65_537, 1_000_000])
def test_patches_update_the_crc(size: int) -> None:
    builder = BatchBuilder()
    builder.append(None, b"x" * size, timestamp=1000)
    data = builder.build()
    batch = RecordBatch(data)
    for number in (1, 2**62 + 3):
        batch.patch_producer(number, number % 1000, 7, number == 1)
        batch.check_crc()
        batch.patch_max_timestamp(number, number != 1)
        batch.check_crc()
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        batch.check_crc()
    batch.patch_producer(5, 5, 5, False)
    with pytest.raises(CorruptRecordError):
        batch.check_crc()
