"""Invalid records, in every field. Errors must name record, field, position and problem."""

import pytest
from tests.support.records import reference_batch as reference

from headrace.common.errors import CorruptRecordError
from headrace.records import Compression, RecordBatch, decode_rows
from headrace.records.compression import compress

ROW = reference.Row(b"key", b"value", 1000, ((b"name", b"data"), (b"none", None)), 1)
FIRST = reference.join_record(reference.record_parts(ROW._replace(offset=0), 0, 1000))
BEFORE = b"something else"
RECORDS_AT = len(BEFORE) + reference.HEADER_BYTES

# The varint fields: their names in `record_parts` and in errors.
FIELDS = {
    "timestamp delta": "timestamp delta",
    "offset delta": "offset delta",
    "key length": "key",
    "value length": "value",
    "header count": "header count",
    "header key length": "header key",
    "header value length": "header value",
}
LENGTHS = {name: shown for name, shown in FIELDS.items() if name.endswith("length")}
CODECS = list(Compression)


def error_of(second: bytes, codec: Compression = Compression.NONE, **header: int) -> CorruptRecordError:
    """Returns the error for a batch of one valid record and the given bytes at index 1."""
    payload = bytes(compress(codec, FIRST + second))
    fields = {"count": 2, "base_timestamp": 1000, "max_timestamp": 1000, "attributes": int(codec)} | header
    buffer = BEFORE + reference.batch_bytes(payload, **fields)
    batch = RecordBatch(buffer, len(BEFORE))
    batch.check_crc()
    with pytest.raises(CorruptRecordError) as raised:
        batch.records()
    return raised.value


def changed(field: str, encoded: bytes) -> tuple[bytes, int]:
    """Returns the second record with one field replaced, and the position of that field."""
    parts = reference.record_parts(ROW, 0, 1000)
    at = [name for name, _ in parts].index(field)
    parts[at] = (field, encoded)
    record = reference.join_record(parts)
    body = b"".join(part for _, part in parts)
    before = b"".join(part for _, part in parts[:at])
    return record, len(FIRST) + len(record) - len(body) + len(before)


def cut_behind(field: str, encoded: bytes) -> tuple[bytes, int]:
    """Returns the second record truncated after a replaced field, and the position of that field."""
    parts = reference.record_parts(ROW, 0, 1000)
    parts = parts[: [name for name, _ in parts].index(field)]
    record = reference.join_record([*parts, (field, encoded)])
    return record, len(FIRST) + len(record) - len(encoded)


def check(
    error: CorruptRecordError, what: str, position: int, problem: str, codec: Compression = Compression.NONE
) -> None:
    """Checks the error. The position is relative to the buffer, or to the uncompressed records."""
    if codec:
        assert str(error) == f"{what} at byte {position} of the inflated records{problem}"
        assert error.position == position
    else:
        assert str(error) == f"{what} at byte {RECORDS_AT + position}{problem}"
        assert error.position == RECORDS_AT + position


def test_unchanged_records_are_valid() -> None:
    second = reference.join_record(reference.record_parts(ROW, 0, 1000))
    for codec in CODECS:
        payload = bytes(compress(codec, FIRST + second))
        batch = RecordBatch(reference.batch_bytes(payload, count=2, attributes=int(codec)))
        assert batch.records().offsets() == [0, 1]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("field", FIELDS)
def test_rejects_record_that_ends_inside_varint(field: str, codec: Compression) -> None:
    record, position = cut_behind(field, b"\x80" * 4)
    problem = ": cut short, 4 bytes left"
    check(error_of(record, codec), f"record 1, {FIELDS[field]}", position, problem, codec)


@pytest.mark.parametrize("field", FIELDS)
def test_rejects_record_that_ends_before_field(field: str) -> None:
    record, position = cut_behind(field, b"")
    error = error_of(record)
    if field == "header key length":
        # The header count exceeds the remaining bytes, which is detected first.
        assert str(error).endswith(": claims 2 headers in 0 bytes")
    else:
        check(error, f"record 1, {FIELDS[field]}", position, ": cut short, 0 bytes left")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("field", FIELDS)
def test_rejects_overlong_varint(field: str, codec: Compression) -> None:
    endless = b"\xff" * (10 if field == "timestamp delta" else 5) + b"\x01"
    record, position = changed(field, endless)
    check(error_of(record, codec), f"record 1, {FIELDS[field]}", position, ": varint is too long", codec)


@pytest.mark.parametrize("field", FIELDS)
def test_rejects_varint_with_extra_bit(field: str) -> None:
    wide = b"\x80" * 9 + b"\x02" if field == "timestamp delta" else b"\x80" * 4 + b"\x10"
    record, position = changed(field, wide)
    check(error_of(record), f"record 1, {FIELDS[field]}", position, ": varint is too long")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("field", "value", "lowest"),
    [
        ("key length", -2, -1),
        ("key length", -(2**31), -1),
        ("value length", -2, -1),
        ("value length", -(2**31), -1),
        ("header count", -1, 0),
        ("header count", -(2**31), 0),
        ("header key length", -1, 0),
        ("header key length", -(2**31), 0),
        ("header value length", -2, -1),
        ("header value length", -(2**31), -1),
    ],
)
def test_rejects_negative_length(field: str, value: int, lowest: int, codec: Compression) -> None:
    record, position = changed(field, reference.varint(value))
    check(error_of(record, codec), f"record 1, {FIELDS[field]}", position, f": {value} is below {lowest}", codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("field", LENGTHS)
@pytest.mark.parametrize("beyond", ["by one", "by all"])
def test_rejects_field_length_past_record(field: str, beyond: str, codec: Compression) -> None:
    good, position = changed(field, reference.varint(0))
    left = len(FIRST) + len(good) - position - 1
    length = left + 1 if beyond == "by one" else 2**31 - 1
    encoded = reference.varint(length)
    record, position = changed(field, encoded)
    problem = f": length {length} but only {left} bytes are left"
    check(error_of(record, codec), f"record 1, {LENGTHS[field]}", position, problem, codec)


def test_rejects_incomplete_record_length() -> None:
    check(error_of(b"\x80"), "record 1, length", len(FIRST), ": cut short, 1 bytes left")


def test_rejects_overlong_record_length() -> None:
    check(error_of(b"\xff" * 10), "record 1, length", len(FIRST), ": varint is too long")


@pytest.mark.parametrize("length", [-1, -(2**31)])
def test_rejects_negative_record_length(length: int) -> None:
    check(error_of(reference.varint(length)), "record 1, length", len(FIRST), f": {length} is below 0")


@pytest.mark.parametrize("length", [8, 2**31 - 1])
def test_rejects_record_length_past_batch(length: int) -> None:
    problem = f": length {length} but only 7 bytes are left"
    check(error_of(reference.varint(length) + b"\0" * 7), "record 1, length", len(FIRST), problem)


def test_rejects_empty_record() -> None:
    check(error_of(b"\0"), "record 1, attributes", len(FIRST) + 1, ": cut short, 0 bytes left")


@pytest.mark.parametrize("codec", CODECS)
def test_rejects_trailing_bytes_in_record(codec: Compression) -> None:
    parts = reference.record_parts(ROW, 0, 1000)
    record = reference.join_record([*parts, ("trailing", b"???")])
    position = len(FIRST) + len(record) - 3
    error = error_of(record, codec)
    check(error, "record 1 has 3 trailing bytes", position, "", codec)


@pytest.mark.parametrize("codec", CODECS)
def test_rejects_trailing_bytes_in_batch(codec: Compression) -> None:
    record = reference.join_record(reference.record_parts(ROW, 0, 1000))
    position = len(FIRST) + len(record)
    error = error_of(record + b"???", codec)
    check(error, "3 trailing bytes", position, ", after the last of 2 records", codec)


def test_rejects_record_that_overlaps_next() -> None:
    """Its length includes the first byte of a third record, which is in the batch, too."""
    record = bytearray(reference.join_record(reference.record_parts(ROW, 0, 1000)))
    record[0] += 2
    error = error_of(bytes(record) + FIRST, count=3)
    check(error, "record 1 has 1 trailing bytes", len(FIRST) + len(record), "")


@pytest.mark.parametrize("count", [2**31 - 1, 1000, 13])
def test_rejects_header_count_beyond_bytes(count: int) -> None:
    record, position = changed("header count", reference.varint(count))
    left = len(FIRST) + len(record) - position - len(reference.varint(count))
    assert left // 2 < count
    check(error_of(record), "record 1, header count", position, f": claims {count} headers in {left} bytes")


def test_rejects_missing_header() -> None:
    record, _ = changed("header count", reference.varint(3))
    check(error_of(record), "record 1, header key", len(FIRST) + len(record), ": cut short, 0 bytes left")


def test_rejects_extra_header() -> None:
    record, _ = changed("header count", reference.varint(1))
    last_header = len(b"\x08none\x01")
    check(error_of(record), f"record 1 has {last_header} trailing bytes", len(FIRST) + len(record) - last_header, "")


@pytest.mark.parametrize("delta", [0, -1, -(2**31)])
def test_rejects_offset_delta_that_does_not_increase(delta: int) -> None:
    record, position = changed("offset delta", reference.varint(delta))
    check(error_of(record), "record 1, offset delta", position, f": {delta} does not follow 0")


def test_rejects_negative_offset_delta() -> None:
    payload = reference.join_record(reference.record_parts(ROW._replace(offset=-1), 0, 1000))
    with pytest.raises(CorruptRecordError, match=r"^record 0, offset delta at byte 64: -1 does not follow -1$"):
        RecordBatch(reference.batch_bytes(payload, count=1)).records()


@pytest.mark.parametrize("delta", [2, 2**31 - 1])
def test_rejects_offset_delta_beyond_last(delta: int) -> None:
    record, position = changed("offset delta", reference.varint(delta))
    problem = f": {delta} is beyond the batch's last offset delta 1"
    check(error_of(record), "record 1, offset delta", position, problem)


def test_timestamps_wrap_like_java() -> None:
    row = ROW._replace(timestamp=-(2**63) + 4, offset=0)
    payload = reference.records_bytes([row], 0, 2**63 - 1)
    assert RecordBatch(reference.batch_bytes(payload, count=1, base_timestamp=2**63 - 1)).records().timestamps() == [
        -(2**63) + 4
    ]


def test_replaces_invalid_utf8_in_header_names() -> None:
    row = ROW._replace(headers=((b"caf\xe9", b"1"), (b"\xff\xfe", None), ("größe".encode(), b"")), offset=0)
    payload = reference.records_bytes([row], 0, 1000)
    (record,) = decode_rows(RecordBatch(reference.batch_bytes(payload, count=1, base_timestamp=1000)).records())
    assert record.headers == (("caf�", b"1"), ("��", None), ("größe", b""))
