"""The batch builder and the row decoder."""

import pickle

import pytest

from headrace.common.errors import UnsupportedCompressionTypeError
from headrace.records import BatchBuilder, Compression, Record, RecordBatch, decode_rows, encode_rows


def test_builder_builds_one_batch() -> None:
    builder = BatchBuilder(base_offset=5)
    assert (len(builder), builder.next_offset, builder.size_in_bytes) == (0, 5, 61)
    assert builder.append(b"key", b"value", 1000) == 15
    assert (len(builder), builder.next_offset, builder.size_in_bytes) == (1, 6, 76)
    assert len(builder.build()) == 76
    with pytest.raises(RuntimeError, match="already built"):
        builder.append(b"key", b"value")
    with pytest.raises(RuntimeError, match="already built"):
        builder.build()


def test_rejects_batch_without_records() -> None:
    builder = BatchBuilder()
    with pytest.raises(ValueError, match="at least one record"):
        builder.build()
    builder.append(None, None)
    assert RecordBatch(builder.build()).count == 1


def test_builder_grows() -> None:
    builder = BatchBuilder(size_hint=0)
    values = [b"x" * size for size in (0, 100, 300, 10_000, 1, 500_000)]
    for value in values:
        builder.append(None, value)
    assert [record.value for record in decode_rows(RecordBatch(builder.build()).records())] == values


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("text", b""), TypeError, "a record's key must be bytes or None, not str"),
        ((b"", bytearray(b"")), TypeError, "a record's value must be bytes or None, not bytearray"),
        ((b"", b"", -2), ValueError, "invalid timestamp -2: expected milliseconds since 1970"),
        ((b"", b"", 0, [(b"name", b"")]), TypeError, "a header's name must be a str, not bytes"),
        ((b"", b"", 0, [("name", "text")]), TypeError, "the value of header 'name' must be bytes or None, not str"),
        ((b"", b"", 0, [("name", b"", 1)]), TypeError, "a header must be a pair of a name and bytes or None"),
        ((b"", b"", 0, [("\ud800", b"")]), UnicodeEncodeError, "surrogates not allowed"),
        ((b"", b"", 0, None, 9), ValueError, "offset 9 must follow 10 within one batch"),
        ((b"", b"", 0, None, 10), ValueError, "offset 10 must follow 10 within one batch"),
        ((b"", b"", 0, None, 10 + 2**31), ValueError, "must follow 10 within one batch"),
    ],
)
def test_rejected_record_leaves_builder_unchanged(
    arguments: tuple[object, ...], error: type[Exception], message: str
) -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append(b"first", b"1", 5)
    before = len(builder), builder.size_in_bytes, builder.next_offset
    with pytest.raises(error, match=message):
        builder.append(*arguments)
    assert (len(builder), builder.size_in_bytes, builder.next_offset) == before
    builder.append(b"second", b"2", 6)
    expected = [(b"first", b"1", 5, None), (b"second", b"2", 6, None)]
    assert builder.build() == encode_rows(expected, base_offset=10)


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 2**31, 2**63 - 1])
def test_rejects_base_offset_out_of_range(base_offset: int) -> None:
    with pytest.raises(ValueError, match=f"base offset {base_offset} is out of range"):
        BatchBuilder(base_offset=base_offset)


def test_codec_and_level_are_checked_before_any_record() -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match="Unknown compression codec 5"):
        BatchBuilder(codec=5)
    with pytest.raises(ValueError, match="invalid compression level 10 for gzip: expected 1 to 9"):
        BatchBuilder(codec=Compression.GZIP, level=10)
    with pytest.raises(ValueError, match="snappy has no compression levels, but level 1 was given"):
        BatchBuilder(codec=Compression.SNAPPY, level=1)


def test_headers_may_build_batch_while_iterated() -> None:
    builder = BatchBuilder()
    builder.append(b"", b"")
    built = []

    def headers() -> object:
        built.append(builder.build())
        yield "name", b""

    with pytest.raises(RuntimeError, match="already built"):
        builder.append(b"key", b"value", 0, headers())
    assert RecordBatch(built[0]).count == 1


def test_headers_may_append_while_iterated() -> None:
    builder = BatchBuilder(size_hint=0)

    def headers() -> object:
        builder.append(b"inner", b"x" * 1000)
        yield "name", b""

    builder.append(b"outer", b"", -1, headers())
    rows = decode_rows(RecordBatch(builder.build()).records())
    assert [(row.key, row.offset) for row in rows] == [(b"inner", 0), (b"outer", 1)]


@pytest.mark.parametrize("codec", list(Compression))
def test_large_batch(codec: Compression) -> None:
    rows = [(b"%d" % i, b"value" * (i % 50), i, [("n", b"%d" % i)] * (i % 3)) for i in range(20_000)]
    batch = RecordBatch(encode_rows(rows, codec=codec))
    decoded = decode_rows(batch.records())
    assert [(row.key, row.value, row.timestamp, list(row.headers)) for row in decoded] == rows
    assert [row.offset for row in decoded] == list(range(20_000))


def test_record_compares_by_value() -> None:
    record = Record(b"k", b"v", 5, [("a", None)], 7, 1)
    same = Record(key=b"k", value=b"v", timestamp=5, headers=(("a", None),), offset=7, timestamp_type=1)
    assert record == same
    assert hash(record) == hash(same)
    assert pickle.loads(pickle.dumps(record)) == record
    assert repr(record) == (
        "Record(key=b'k', value=b'v', timestamp=5, headers=(('a', None),), offset=7, timestamp_type=1)"
    )
    fields = [b"k", b"v", 5, (("a", None),), 7, 1]
    for at, other in enumerate([b"K", b"V", 6, (("a", b""),), 8, 0]):
        assert Record(*fields[:at], other, *fields[at + 1 :]) != record  # type: ignore[call-arg]
    assert record != "Record"
    with pytest.raises(AttributeError):
        record.offset = 8


def test_record_requires_only_key_and_value() -> None:
    record = Record(None, b"v")
    assert (record.timestamp, record.headers, record.offset, record.timestamp_type) == (-1, (), -1, 0)
