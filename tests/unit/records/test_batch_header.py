"""The unchecked copy of a batch header."""

import pytest

from headrace.common.errors import CorruptRecordError
from headrace.records import BATCH_HEADER_BYTES, BatchHeader, Compression, RecordBatch, encode_rows

BATCH = encode_rows(
    [(b"key", b"value", 1000, None)] * 3,
    base_offset=70,
    producer_id=2**40,
    producer_epoch=2,
    base_sequence=30,
    transactional=True,
    codec=Compression.ZSTD,
)


def test_reads_the_same_fields_as_a_batch() -> None:
    header, batch = BatchHeader(memoryview(BATCH)), RecordBatch(BATCH)
    for name in dir(header):
        if not name.startswith("_"):
            assert getattr(header, name) == getattr(batch, name), name


def test_reads_invalid_header() -> None:
    header = BatchHeader(bytes(8) + b"\xff" * (BATCH_HEADER_BYTES - 8))
    assert (header.base_offset, header.size_in_bytes, header.magic) == (0, 11, -1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_does_not_reference_buffer() -> None:
    data = bytearray(BATCH)
    header = BatchHeader(data)
    data.clear()
    assert header.base_offset == 70


def test_rejects_fewer_bytes_than_header() -> None:
    with pytest.raises(CorruptRecordError, match="Batch is cut short: 60 bytes, expected at least 61"):
        BatchHeader(BATCH[: BATCH_HEADER_BYTES - 1])
