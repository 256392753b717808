"""Invalid batch headers. Each must raise an error that names the problem and the byte."""

import pytest
from tests.support.records import reference_batch as reference

from headrace.common.errors import (
    CorruptRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from headrace.records import RecordBatch, decode_rows, split_batches, walk_headers

ROWS = [
    reference.Row(b"key", b"value", 1000, ((b"name", b"data"),), 0),
    reference.Row(None, b"another value", 1001, (), 1),
]
RECORDS = reference.records_bytes(ROWS, 0, 1000)
BEFORE = b"something else"
AT = len(BEFORE)


def batch_with(**fields: int) -> bytes:
    """Returns the batch of ROWS with changed header fields, after other bytes."""
    return BEFORE + reference.batch_bytes(
        RECORDS, **{"count": 2, "base_timestamp": 1000, "max_timestamp": 1001} | fields
    )


def test_unchanged_batch_is_valid() -> None:
    batch = RecordBatch(batch_with(), AT)
    batch.check_crc()
    assert [record.value for record in decode_rows(batch.records())] == [b"value", b"another value"]


@pytest.mark.parametrize("size", range(reference.HEADER_BYTES))
def test_rejects_incomplete_header(size: int) -> None:
    message = f"batch at byte {AT} is cut short: {size} bytes, expected at least 61"
    with pytest.raises(CorruptRecordError, match=f"^{message}$") as raised:
        RecordBatch(batch_with()[: AT + size], AT)
    assert raised.value.position == AT


@pytest.mark.parametrize("position", [-1, -(2**63), 2**63 - 1, 10_000])
def test_rejects_position_outside_buffer(position: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"^batch at byte {position} is cut short: 0 bytes"):
        RecordBatch(batch_with(), position)


@pytest.mark.parametrize("magic", [0, 1])
def test_rejects_old_magic(magic: int) -> None:
    message = f"^batch at byte {AT} has magic {magic}; only record batches of magic 2 are supported$"
    with pytest.raises(UnsupportedForMessageFormatError, match=message):
        RecordBatch(batch_with(magic=magic), AT)
    with pytest.raises(UnsupportedForMessageFormatError, match=message):
        split_batches(batch_with(magic=magic), AT)


@pytest.mark.parametrize("magic", [-128, -1, 3, 127])
def test_rejects_other_magic(magic: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"^batch at byte {AT} has magic {magic}, expected 2$") as raised:
        RecordBatch(batch_with(magic=magic), AT)
    assert raised.value.position == AT


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_rejects_length_below_header(length: int) -> None:
    message = f"^batch at byte {AT} has length {length}, expected at least 49$"
    with pytest.raises(CorruptRecordError, match=message) as raised:
        RecordBatch(batch_with(length=length), AT)
    assert raised.value.position == AT
    with pytest.raises(CorruptRecordError, match=message):
        split_batches(batch_with(length=length), AT, allow_partial=True)


@pytest.mark.parametrize("length", [49 + len(RECORDS) + 1, 2**31 - 1])
def test_rejects_length_past_buffer(length: int) -> None:
    message = f"^batch at byte {AT} has length {length} but only {49 + len(RECORDS)} bytes are left$"
    with pytest.raises(CorruptRecordError, match=message) as raised:
        RecordBatch(batch_with(length=length), AT)
    assert raised.value.position == AT


def test_rejects_length_that_truncates_records() -> None:
    batch = RecordBatch(batch_with(length=49 + len(RECORDS) - 1), AT)
    with pytest.raises(CorruptRecordError, match="is corrupt: stored crc"):
        batch.check_crc()
    second = len(reference.records_bytes(ROWS[1:], 0, 1000))
    position = AT + len(batch.raw) - (second - 1)
    message = f"^record 1, length at byte {position}: length {second - 1} but only {second - 2} bytes are left$"
    with pytest.raises(CorruptRecordError, match=message) as raised:
        batch.records()
    assert raised.value.position == position


@pytest.mark.parametrize(
    ("field", "shown"), [("length", "length -1, magic 2"), ("magic", f"length {49 + len(RECORDS)}, magic -1")]
)
def test_walk_rejects_invalid_header(field: str, shown: str) -> None:
    good = reference.batch_bytes(RECORDS, count=2)
    buffer = bytes(good) + batch_with(**{field: -1})[AT:]
    with pytest.raises(CorruptRecordError, match=f"^no batch at byte {len(good)}: {shown}$") as raised:
        walk_headers(buffer, 0, 100)
    assert raised.value.position == len(good)


def test_crc_covers_every_byte_after_it() -> None:
    sealed = batch_with()
    for at in range(AT, len(sealed)):
        if AT + 8 <= at < AT + 17:
            continue  # other tests cover length and magic
        buffer = bytearray(sealed)
        buffer[at] ^= 0x10
        batch = RecordBatch(buffer, AT)
        if at < AT + reference.CRC_AT:
            batch.check_crc()
            continue
        with pytest.raises(
            CorruptRecordError, match=rf"^batch at byte {AT} \(base offset 0\) is corrupt: stored crc = "
        ) as error:
            batch.check_crc()
        assert f"crc = {batch.crc:#010x}, computed crc = {reference.crc32c(buffer[AT + 21 :]):#010x}" in str(
            error.value
        )
        assert error.value.position == AT


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_rejects_negative_count(count: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"^batch at byte {AT} claims {count} records$") as raised:
        RecordBatch(batch_with(count=count, last_offset_delta=1), AT).records()
    assert raised.value.position == AT


@pytest.mark.parametrize("count", [len(RECORDS) // 7 + 1, 2**31 - 1])
def test_rejects_record_count_beyond_bytes(count: int) -> None:
    message = f"^batch at byte {AT} claims {count} records in {len(RECORDS)} bytes$"
    with pytest.raises(CorruptRecordError, match=message) as raised:
        RecordBatch(batch_with(count=count), AT).records()
    assert raised.value.position == AT


@pytest.mark.parametrize("count", [3, len(RECORDS) // 7])
def test_rejects_missing_record(count: int) -> None:
    end = AT + reference.HEADER_BYTES + len(RECORDS)
    message = f"^the batch claims {count} records but ends after 2, at byte {end}$"
    with pytest.raises(CorruptRecordError, match=message) as raised:
        RecordBatch(batch_with(count=count), AT).records()
    assert raised.value.position == end


@pytest.mark.parametrize("count", [0, 1])
def test_rejects_extra_record(count: int) -> None:
    used = len(reference.records_bytes(ROWS[:count], 0, 1000))
    position = AT + reference.HEADER_BYTES + used
    message = f"^{len(RECORDS) - used} trailing bytes at byte {position}, after the last of {count} records$"
    with pytest.raises(CorruptRecordError, match=message) as raised:
        RecordBatch(batch_with(count=count, last_offset_delta=1), AT).records()
    assert raised.value.position == position


@pytest.mark.parametrize(
    "fields",
    [{"base_offset": -1}, {"base_offset": -(2**63)}, {"last_offset_delta": -1}, {"last_offset_delta": -(2**31)}],
)
def test_rejects_negative_offsets(fields: dict[str, int]) -> None:
    shown = {"base_offset": 0, "last_offset_delta": 1} | fields
    message = (
        f"^batch at byte {AT} has base offset {shown['base_offset']} and last offset delta "
        f"{shown['last_offset_delta']}; neither may be negative$"
    )
    with pytest.raises(CorruptRecordError, match=message) as raised:
        RecordBatch(batch_with(**fields), AT).records()
    assert raised.value.position == AT


@pytest.mark.parametrize(("base_offset", "delta"), [(2**63 - 1, 1), (2**63 - 2, 1), (2**63 - 2**31, 2**31 - 1)])
def test_rejects_offsets_beyond_64_bits(base_offset: int, delta: int) -> None:
    message = (
        f"^batch at byte {AT} has base offset {base_offset} and last offset delta {delta}; "
        "the last offset exceeds 64 bits$"
    )
    batch = RecordBatch(batch_with(base_offset=base_offset, last_offset_delta=delta), AT)
    with pytest.raises(CorruptRecordError, match=message) as raised:
        batch.records()
    assert raised.value.position == AT
    assert batch.last_offset == reference.signed(base_offset + delta, 64)
    assert batch.next_offset == reference.signed(base_offset + delta + 1, 64)


def test_accepts_largest_offset() -> None:
    batch = RecordBatch(batch_with(base_offset=2**63 - 3), AT)
    assert batch.records().offsets() == [2**63 - 3, 2**63 - 2]
    assert batch.next_offset == 2**63 - 1


def test_walk_handles_wrapped_offsets() -> None:
    wrapped = reference.batch_bytes(RECORDS, count=2, base_offset=2**63 - 1)
    assert walk_headers(wrapped, 0, 5) == len(wrapped)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_rejects_unknown_codec(codec: int) -> None:
    batch = RecordBatch(batch_with(attributes=codec), AT)
    assert (batch.codec, batch.is_compressed) == (codec, True)
    message = f"^batch at byte {AT}: Unknown compression codec {codec}: expected 0 to 4$"
    with pytest.raises(UnsupportedCompressionTypeError, match=message):
        batch.records()


@pytest.mark.parametrize("allow_partial", [False, True])
def test_split_rejects_negative_position(allow_partial: bool) -> None:
    with pytest.raises(ValueError, match=r"^position must not be negative: -12$"):
        split_batches(batch_with(), -12, allow_partial)


def test_walk_rejects_negative_position() -> None:
    with pytest.raises(ValueError, match=r"^position must not be negative: -12$"):
        walk_headers(batch_with(), -12, 0)


def test_rejects_none_as_batch() -> None:
    with pytest.raises(TypeError, match="at least 1 positional argument"):
        RecordBatch.__new__(RecordBatch)
