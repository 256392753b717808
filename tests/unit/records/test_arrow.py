"""Arrow columns: accepted and rejected types, and decoders after an error."""

import pyarrow as pa
import pytest
from tests.support.records import reference_batch as reference

from headrace.common.errors import CorruptRecordError
from headrace.records import Compression, ControlType, RecordBatch, decode_rows, encode_marker, encode_rows
from headrace.records._columns import ColumnDecoder, ColumnEncoder, spare_bytes
from headrace.records.arrow import HEADERS_TYPE, ArrowDecoder, decode_arrow, encode_arrow, open_encoder, records_schema

VALUES = pa.array([b"one", None, b"three"])


def values_of(batches: list[bytearray]) -> list[bytes | None]:
    return [record.value for batch in batches for record in decode_rows(RecordBatch(batch).records())]


def timestamps_of(batches: list[bytearray]) -> list[int]:
    return [record.timestamp for batch in batches for record in decode_rows(RecordBatch(batch).records())]


def test_columns_of_decoded_records() -> None:
    rows = [(b"k", None, 1_700_000_000_123, [("a", b"1"), ("b", None)]), (None, b"v", 0, None)]
    decoded = decode_arrow([RecordBatch(encode_rows(rows, base_offset=40))], timestamp_unit="us")
    assert decoded.schema == records_schema("us")
    assert decoded.column("key").to_pylist() == [b"k", None]
    assert decoded.column("value").to_pylist() == [None, b"v"]
    assert decoded.column("headers").to_pylist() == [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], []]
    assert decoded.column("offset").to_pylist() == [40, 41]
    assert decoded.column("timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_123_000, 0]
    assert decoded.column("timestamp_type").to_pylist() == [0, 0]


def test_no_batches_yield_empty_table() -> None:
    decoded = decode_arrow([])
    decoded.validate(full=True)
    assert (decoded.num_rows, decoded.schema) == (0, records_schema())


def test_units_of_timestamps() -> None:
    with pytest.raises(ValueError, match="timestamp_unit must be 'ms' or 'us', not 'ns'"):
        ArrowDecoder("ns")


def test_limits_decompression() -> None:
    batch = RecordBatch(encode_rows([(None, bytes(10_000), 0, None)], codec=Compression.ZSTD))
    with pytest.raises(CorruptRecordError, match="decompresses to more than the limit of 1000 bytes"):
        decode_arrow([batch], max_inflated_bytes=1000)


def test_replaces_invalid_utf8_in_header_names() -> None:
    headers = ((b"caf\xe9", b"1"), (b"\xff" * 3, None), ("größe".encode(), b""), (b"plain", b"2"))
    rows = [reference.Row(b"", b"", 0, headers, 0)]
    batch = RecordBatch(reference.encode(rows))
    decoded = decode_arrow([batch])
    decoded.validate(full=True)
    names = [header["key"] for header in decoded.column("headers")[0].as_py()]
    assert names == ["caf�", "���", "größe", "plain"]
    assert names == [name for name, _ in decode_rows(batch.records())[0].headers]


def test_columns_outlive_decoder() -> None:
    decoder = ArrowDecoder()
    decoder.add(RecordBatch(encode_rows([(b"k", b"v" * 1000, 5, [("a", b"b")])])).records())
    column = decoder.finish().column("value")
    del decoder
    assert column.to_pylist() == [b"v" * 1000]


@pytest.mark.parametrize("before", [0, 1, 7, 8, 9])
def test_failed_batch_leaves_no_rows(before: int) -> None:
    """Headers are parsed again when they become columns, and the buffer may have changed since."""
    good = [(b"k%d" % i, b"v", i, [("name", None), ("other", b"x")]) for i in range(before)]
    later = [(b"later", b"v", 9, [("late", b"1"), ("null", None)]), (None, None, 10, [])]
    buffer = encode_rows([(b"bad", b"v", 5, [("fine", b"1"), ("spoilt", b"2")])] * 3)
    records = RecordBatch(buffer).records()
    spoilt = buffer.rindex(b"spoilt") - 1
    buffer[spoilt : spoilt + 2] = b"\xff\xff"
    decoder = ArrowDecoder()
    if good:
        decoder.add(RecordBatch(encode_rows(good)).records())
    with pytest.raises(CorruptRecordError, match="header key"):
        decoder.add(records)
    decoder.add(RecordBatch(encode_rows(later)).records())
    assert len(decoder) == before + 2
    decoded = decoder.finish()
    decoded.validate(full=True)
    assert decoded.column("key").to_pylist() == [row[0] for row in good + later]
    found = [[(header["key"], header["value"]) for header in row] for row in decoded.column("headers").to_pylist()]
    assert found == [row[3] for row in good + later]


def test_crcs_are_checked_on_request() -> None:
    buffer = encode_rows([(b"key", b"value", 5, None)])
    buffer[buffer.index(b"value")] = ord("V")
    broken = RecordBatch(b"elsewhere" + buffer, 9)
    assert decode_arrow([broken]).column("value").to_pylist() == [b"Value"]
    with pytest.raises(CorruptRecordError, match=r"^batch at byte 9 .* is corrupt: stored crc"):
        decode_arrow([broken], check_crcs=True)


def test_many_batches_at_once() -> None:
    """An invalid batch raises an error; the records before it are kept."""
    data = RecordBatch(encode_rows([(b"k", b"v", 5, [("a", None)]), (None, None, 6, None)], base_offset=5))
    marker = RecordBatch(
        encode_marker(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=5)
    )
    broken = RecordBatch(reference.batch_bytes(b"", count=1))
    decoder = ArrowDecoder(size_hint=10**12)
    decoder.add_all([data, marker, data], min_offset=6)
    with pytest.raises(CorruptRecordError, match="claims 1 records in 0 bytes"):
        decoder.add_all([data, broken, data])
    decoded = decoder.finish()
    decoded.validate(full=True)
    assert decoded.column("offset").to_pylist() == [6, 6, 5, 6]
    for wrong in (None, b"bytes"):
        with pytest.raises(TypeError):
            decoder.add_all([wrong])


@pytest.mark.parametrize("size", range(40))
def test_short_values_to_the_last_byte(size: int) -> None:
    """Short values are copied sixteen bytes at a time, in both directions."""
    values = [bytes([i]) * (size + i % 2) for i in range(1, 5)]
    encoded = encode_rows([(value, value, 0, [("h", value)]) for value in values])
    decoded = decode_arrow([RecordBatch(encoded)])
    assert decoded.column("key").to_pylist() == decoded.column("value").to_pylist() == values
    assert encode_arrow(decoded) == [encoded]


def test_rejects_timestamps_that_overflow_microseconds() -> None:
    good = encode_rows([(None, b"good", (2**63 - 1) // 1000, None)])
    bad = b"elsewhere" + encode_rows([(None, b"bad", 5, None), (None, b"bad", (2**63 - 1) // 1000 + 1, None)])
    decoder = ArrowDecoder("us")
    decoder.add(RecordBatch(good).records())
    message = (
        r"^record 1 of the batch at byte 9 has timestamp 9223372036854776, which multiplied by 1000 exceeds 64 bits$"
    )
    with pytest.raises(CorruptRecordError, match=message) as raised:
        decoder.add(RecordBatch(bad, 9).records())
    assert raised.value.position == 9
    assert decoder.finish().column("value").to_pylist() == [b"good"]


def test_omitted_records_do_not_count() -> None:
    rows = [(None, b"far", 2**63 - 1, None), (None, b"near", 5, None)]
    records = RecordBatch(encode_rows(rows)).records()
    decoder = ArrowDecoder("us")
    assert decoder.add(records, min_offset=1) == 1
    assert decoder.add(records, min_offset=2) == 0
    assert decoder.finish().column("value").to_pylist() == [b"near"]


# ---- encoding


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(3),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_types_of_keys_and_values(kind: pa.DataType) -> None:
    data = [b"one", None, b"two"] if "binary" in str(kind) else ["one", None, "two"]
    column = pa.array(data, kind)
    encoded = encode_arrow(pa.table({"key": column, "value": column}))
    expected = [(item, item, -1, None) for item in (b"one", None, b"two")]
    assert encoded == [encode_rows(expected)]


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("ms"), pa.list_(pa.binary())], ids=str
)
def test_rejects_types_other_than_bytes(kind: pa.DataType) -> None:
    for name in ("key", "value"):
        table = pa.table({"value": VALUES, name: pa.nulls(3, kind)})
        with pytest.raises(TypeError, match=rf"^column '{name}' has type {kind}".replace("[", r"\[").replace("<", ".")):
            encode_arrow(table)


def test_rejects_data_without_value_column() -> None:
    with pytest.raises(ValueError, match=r"^the data has no column 'value'; its columns are \['key'\]$"):
        encode_arrow(pa.table({"key": VALUES}))


def test_columns_without_a_type_are_all_null() -> None:
    table = pa.table({name: pa.nulls(2) for name in ("key", "value", "headers", "timestamp")})
    assert encode_arrow(table, timestamp=5) == [encode_rows([(None, None, 5, None)] * 2)]


def test_no_rows_yield_no_batch() -> None:
    assert encode_arrow(pa.table({"value": pa.array([], pa.binary())})) == []
    empty = pa.RecordBatch.from_pydict({"value": VALUES})
    assert encode_arrow(pa.Table.from_batches([empty.slice(0, 0), empty, empty.slice(3)])) == encode_arrow(empty)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, 2], pa.timestamp("s")), [1000, 2000]),
        (pa.array([1, None], pa.timestamp("ms", tz="Europe/Paris")), [1, 77]),
        (pa.array([1999, 2000], pa.timestamp("us")), [1, 2]),
        (pa.array([1_999_999, 2_000_000], pa.timestamp("ns")), [1, 2]),
        (pa.array([5, None], pa.int32()), [5, 77]),
        (pa.array([5, 2**63 - 1], pa.uint64()), [5, 2**63 - 1]),
        (pa.array([-1, 0], pa.int64()), [-1, 0]),
    ],
)
def test_units_of_a_timestamp_column(column: pa.Array, expected: list[int]) -> None:
    table = pa.table({"value": pa.array([b"", b""]), "timestamp": column})
    assert timestamps_of(encode_arrow(table, timestamp=77)) == expected


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (pa.array([0.5]), TypeError, "column 'timestamp' has type double; expected a timestamp or milliseconds"),
        (pa.array(["1970-01-01"]), TypeError, "column 'timestamp' has type string"),
        (
            pa.array([-2], pa.int64()),
            ValueError,
            "row 0: invalid timestamp -2, expected milliseconds since 1970, or -1 for none",
        ),
        (pa.array([2**62], pa.timestamp("s")), ValueError, "would result in out of bounds timestamp"),
        (pa.array([2**63], pa.uint64()), ValueError, "not in range"),
    ],
)
def test_rejects_invalid_timestamps(column: pa.Array, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        encode_arrow(pa.table({"value": pa.array([b""]), "timestamp": column}))


MANY_ROWS = [(b"%05d" % number, b"%05d" % number * 20, number, None) for number in range(20_000)]


class TestMemory:
    """The memory of released columns is reused."""

    def table(self, size_hint: int = 0, rows_hint: int = 0) -> pa.RecordBatch:
        decoder = ArrowDecoder(size_hint=size_hint, rows_hint=rows_hint)
        decoder.add_all([RecordBatch(encode_rows(MANY_ROWS))])
        return decoder.finish()

    @pytest.mark.parametrize("hints", [(0, 0), (2_500_000, 20_000), (100, 1), (50_000_000, 1_000_000)])
    def test_hints_do_not_change_result(self, hints: tuple[int, int]) -> None:
        for _ in range(3):
            table = self.table(*hints)
            assert table.column("value").to_pylist() == [value for _, value, _, _ in MANY_ROWS]
            assert table.column("key").to_pylist() == [key for key, _, _, _ in MANY_ROWS]
            table.validate(full=True)

    def test_spare_memory_is_bounded_and_not_in_use(self) -> None:
        kept = [self.table(2_500_000, 20_000) for _ in range(20)]
        others = [self.table(2_500_000, 20_000) for _ in range(20)]
        del others
        assert 0 < spare_bytes() <= 16 * 1024 * 1024
        held = spare_bytes()
        again = self.table(2_500_000, 20_000)
        assert spare_bytes() < held
        assert again.equals(kept[0])
        assert all(each.equals(kept[0]) for each in kept)


def test_rejects_invalid_default_timestamp() -> None:
    with pytest.raises(ValueError, match=r"row 0: invalid timestamp -2"):
        encode_arrow(pa.table({"value": VALUES}), timestamp=-2)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([{"a": b"1"}] * 3),
        pa.array([[b"1"]] * 3),
        pa.array([[{"key": "a", "value": b"1", "more": 5}]] * 3),
        pa.array([[("a", b"1")]] * 3, pa.map_(pa.string(), pa.binary())),
    ],
    ids=lambda column: str(column.type),
)
def test_rejects_headers_of_wrong_type(column: pa.Array) -> None:
    with pytest.raises(
        TypeError, match=r"^column 'headers' has type .*; expected a list of structs of 'key' and 'value'$"
    ):
        encode_arrow(pa.table({"value": VALUES, "headers": column}))


@pytest.mark.parametrize("nameless", [[{"key": None, "value": b"1"}], [None]])
def test_rejects_headers_without_name(nameless: list[object]) -> None:
    """Only the headers of the encoded rows count."""
    good = [{"key": "a", "value": None}]
    table = pa.table({"value": VALUES, "headers": pa.array([nameless, good, nameless], HEADERS_TYPE)})
    with pytest.raises(ValueError, match="column 'headers' has a header without a name"):
        encode_arrow(table)
    assert encode_arrow(table.slice(1, 1)) == [encode_rows([(None, None, -1, [("a", None)])])]


def test_ignores_headers_of_null_list() -> None:
    structs = pa.array([{"key": "a", "value": b"1"}, {"key": None, "value": b"2"}, {"key": "c", "value": None}])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), structs, mask=pa.array([False, True, False]))
    rows = [(None, b"one", -1, [("a", b"1")]), (None, None, -1, None), (None, b"three", -1, [("c", None)])]
    assert encode_arrow(pa.table({"value": VALUES, "headers": lists})) == [encode_rows(rows)]


def test_small_limit_yields_batch_per_row() -> None:
    batches = encode_arrow(pa.table({"value": VALUES}), max_bytes=0, base_offset=7)
    assert [RecordBatch(batch).base_offset for batch in batches] == [7, 8, 9]
    assert values_of(batches) == VALUES.to_pylist()


def test_no_batch_is_larger_than_the_limit() -> None:
    column = pa.array([b"x" * (i % 9) for i in range(30)])
    for limit in range(200, 400):
        batches = encode_arrow(pa.table({"value": column}), max_bytes=limit)
        assert values_of(batches) == column.to_pylist()
        assert max(map(len, batches)) <= limit
        assert max(map(len, batches)) > limit - 25


def test_default_limit_is_one_mebibyte() -> None:
    batches = encode_arrow(pa.table({"value": pa.array([b"x" * 100] * 12_000)}))
    assert len(batches) == 2
    assert 2**20 - 110 < len(batches[0]) <= 2**20


def test_sequences_continue_and_wrap() -> None:
    fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 2**31 - 2, "transactional": True}
    batches = [RecordBatch(batch) for batch in encode_arrow(pa.table({"value": VALUES}), max_bytes=0, **fields)]
    assert [batch.base_sequence for batch in batches] == [2**31 - 2, 2**31 - 1, 0]
    assert all(batch.is_transactional and batch.producer_id == 1 for batch in batches)
    without = encode_arrow(pa.table({"value": VALUES}), max_bytes=0)
    assert [RecordBatch(batch).base_sequence for batch in without] == [-1, -1, -1]


@pytest.mark.parametrize("base_offset", [-1, 2**63 - 2**31])
def test_rejects_base_offset_out_of_range(base_offset: int) -> None:
    with pytest.raises(ValueError, match=f"base offset {base_offset} is out of range"):
        encode_arrow(pa.table({"value": VALUES}), base_offset=base_offset)


def test_unaligned_arrays() -> None:
    """As in a received message, which may be unaligned."""

    def at_odd_address(array: pa.Array) -> pa.Array:
        buffers = [buffer and pa.py_buffer(b"." + buffer.to_pybytes()).slice(1) for buffer in array.buffers()]
        assert all(buffer is None or buffer.address % 2 for buffer in buffers)
        return pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset)

    times = at_odd_address(pa.array([5, 6, 7], pa.int64()))
    table = pa.table({"value": at_odd_address(VALUES), "timestamp": times})
    rows = [(None, value, stamp, None) for value, stamp in zip(VALUES.to_pylist(), (5, 6, 7), strict=True)]
    assert encode_arrow(table) == [encode_rows(rows)]


# ---- inconsistent buffers


INT32S = b"".join(n.to_bytes(4, "little", signed=True) for n in (0, 3, 6))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, None, None, None, None), "rows=-1 and timestamps_shift=0 must not be negative"),
        ((1, None, None, None, bytes(8), -1), "rows=1 and timestamps_shift=-1 must not be negative"),
        ((1, None, (None, INT32S, b"abcdef", -1), None, None), "the offset of an Arrow array must not be negative: -1"),
        ((3, None, (None, INT32S, b"abcdef", 0), None, None), "12 bytes, expected at least 16"),
        ((2, None, (None, INT32S, b"abcdef", 1), None, None), "12 bytes, expected at least 16"),
        ((2, None, (None, INT32S, b"abcde", 0), None, None), "5 bytes, expected at least 6"),
        ((2, None, (None, INT32S, None, 0), None, None), "offsets but no data"),
        ((2, None, (b"", INT32S, b"abcdef", 0), None, None), "0 bytes, expected at least 1"),
        ((1, None, (None, b"\0\0\0\0\xff\xff\xff\xff", b"", 0), None, None), "offsets decrease at row 0"),
        ((1, None, (None, b"\xff\xff\xff\xff\0\0\0\0", b"", 0), None, None), "offsets decrease at row 0"),
        ((1, None, (None, b"\x05\0\0\0\x04\0\0\0", b"abcdef", 0), None, None), "offsets decrease at row 0"),
        ((2, None, None, None, bytes(15)), "15 bytes, expected at least 16"),
        ((1, None, None, None, bytes(15), 1), "15 bytes, expected at least 16"),
        (
            (1, None, None, (None, INT32S[:8], 0, None, (None, INT32S, b"abcdef", 0)), None),
            "12 bytes, expected at least 16",
        ),
        ((1, None, None, (None, b"\xff" * 8, 0, None, None), None), "offsets decrease at row 0"),
    ],
)
def test_rejects_buffers_that_are_too_small(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ColumnEncoder(*arguments)


def test_encoder_can_be_reused() -> None:
    encoder = ColumnEncoder(2, None, (None, INT32S, b"abcdef", 0), None, None)
    rows = [(None, b"abc", 0, None), (None, b"def", 0, None)]
    for _ in range(2):
        assert encoder.encode_all(default_timestamp=0, max_bytes=1000) == [encode_rows(rows)]
        assert len(encoder.encode_all(default_timestamp=0, max_bytes=0)) == 2
    assert ColumnEncoder(0, None, None, None, None).encode_all(default_timestamp=0, max_bytes=0) == []


def test_encodes_batch_by_batch() -> None:
    column = pa.array([b"x" * (i % 9) for i in range(300)])
    encoder = open_encoder(pa.record_batch({"value": column}))
    encoded = []
    while (batch := encoder.encode_next(default_timestamp=len(encoded), max_bytes=400, spare=[])) is not None:
        encoded.append(batch)
    assert encoder.encode_next(default_timestamp=0, max_bytes=400) is None
    batches = [RecordBatch(batch) for batch in encoded]
    assert [batch.base_offset for batch in batches] == [0] * len(batches)
    assert [batch.max_timestamp for batch in batches] == list(range(len(batches)))
    assert [(batch.producer_id, batch.base_sequence) for batch in batches] == [(-1, -1)] * len(batches)
    assert [len(batch) for batch in encoded] == [
        len(batch) for batch in encode_arrow(pa.table({"value": column}), max_bytes=400)
    ]
    assert values_of(encoded) == column.to_pylist()


def test_batch_by_batch_is_byte_for_byte_the_same_for_one_batch() -> None:
    encoder = open_encoder(pa.record_batch({"value": VALUES}), 7)
    first = encoder.encode_next(default_timestamp=7, max_bytes=1000, codec=Compression.GZIP)
    assert [first] == encode_arrow(pa.table({"value": VALUES}), timestamp=7, codec=Compression.GZIP)


def test_decoder_constructor_creates_columns() -> None:
    decoder = ColumnDecoder.__new__(ColumnDecoder)
    decoder.__init__()
    assert decoder.add(RecordBatch(encode_rows([(b"k", b"v", 0, None)])).records()) == 1
    with pytest.raises(ValueError, match="timestamp_scale must be at least 1: 0"):
        ColumnDecoder(0)


def test_header_fields_are_selected_by_name() -> None:
    kind = pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())]))
    table = pa.table({"value": [b"v"], "headers": pa.array([[{"value": b"1", "key": "k"}]], kind)})
    assert encode_arrow(table, timestamp=0) == [encode_rows([(None, b"v", 0, [("k", b"1")])])]


def test_uses_spare_buffers_first() -> None:
    table = pa.table({"value": pa.array([b"x" * 50] * 40, pa.binary())})
    expected = encode_arrow(table, timestamp=1, max_bytes=1000)
    first, second, looked_at = bytearray(b"\xff" * 5000), bytearray(3), bytearray(2000)
    with memoryview(looked_at):
        spare = [second, first, looked_at]
        encoded = encode_arrow(table, timestamp=1, max_bytes=1000, spare=spare)
    assert encoded == expected
    assert spare == []
    assert [any(each is buffer for each in encoded) for buffer in (first, second, looked_at)] == [True, True, False]
