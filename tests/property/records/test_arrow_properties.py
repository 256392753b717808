"""Arrow columns compared with rows: same records, same bytes."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.property.records.strategies import (
    MAX_INT64,
    ArrowSample,
    Sample,
    arrow_samples,
    codecs,
    codecs_with_levels,
    header_fields,
    samples,
)

from headrace.common.errors import CorruptRecordError
from headrace.records import BatchBuilder, Compression, Record, RecordBatch, decode_rows, encode_rows
from headrace.records.arrow import ArrowDecoder, decode_arrow, encode_arrow, records_schema

NO_LIMIT = 2**31


def records_of(decoded: pa.RecordBatch, scale: int = 1) -> list[Record]:
    """Validates an Arrow record batch and returns its rows."""
    decoded.validate(full=True)
    times = decoded.column("timestamp").cast(pa.int64()).to_pylist()
    rows = decoded.drop_columns(["timestamp"]).to_pylist()
    assert all(time % scale == 0 for time in times)
    return [
        Record(
            row["key"],
            row["value"],
            time // scale,
            [(header["key"], header["value"]) for header in row["headers"]],
            row["offset"],
            row["timestamp_type"],
        )
        for row, time in zip(rows, times, strict=True)
    ]


def build(sample: Sample, codec: Compression) -> bytearray:
    builder = BatchBuilder(codec=codec, **sample.fields)
    for row, offset in zip(sample.rows, sample.offsets, strict=True):
        builder.append(*row, offset)
    return builder.build()


@given(st.lists(samples(), max_size=4), codecs, st.integers(0, 2**62))
def test_columns_have_rows_of_all_data_batches(parts: list[Sample], codec: Compression, min_offset: int) -> None:
    batches = [RecordBatch(build(part, codec)) for part in parts]
    decoded = decode_arrow(batches, min_offset=min_offset)
    assert decoded.schema == records_schema()
    data = [batch for batch in batches if not batch.is_control]
    assert records_of(decoded) == [row for batch in data for row in decode_rows(batch.records(), min_offset)]


@given(samples(), st.sampled_from(["ms", "us"]))
def test_timestamps_in_either_unit(sample: Sample, unit: str) -> None:
    scale = {"ms": 1, "us": 1000}[unit]
    decoder = ArrowDecoder(unit)
    records = RecordBatch(sample.reference_batch).records()
    if any(timestamp > MAX_INT64 // scale for timestamp in records.timestamps()):
        with pytest.raises(CorruptRecordError, match=r"record \d+ of the batch at byte 0 has timestamp \d+"):
            decoder.add(records)
        assert decoder.finish().num_rows == 0
    else:
        assert decoder.add(records) == len(sample.rows)
        decoded = decoder.finish()
        assert decoded.schema == records_schema(unit)
        assert records_of(decoded, scale) == sample.records


@given(st.lists(samples(), min_size=1, max_size=4), st.data())
def test_decoder_counts_rows_and_restarts_after_finish(parts: list[Sample], data: st.DataObject) -> None:
    decoder = ArrowDecoder()
    for _ in range(2):
        expected: list[Record] = []
        for part in parts:
            min_offset = data.draw(st.sampled_from([0, *part.offsets]))
            wanted = [record for record in part.records if record.offset >= min_offset]
            assert decoder.add(RecordBatch(part.reference_batch).records(), min_offset) == len(wanted)
            expected += wanted
        assert len(decoder) == len(expected)
        assert decoder.size_in_bytes == sum(len(record.key or b"") + len(record.value or b"") for record in expected)
        assert records_of(decoder.finish()) == expected
        assert (len(decoder), decoder.size_in_bytes) == (0, 0)


@given(arrow_samples(), header_fields, codecs_with_levels())
def test_columns_encode_like_rows(
    sample: ArrowSample, fields: dict[str, Any], codec_and_level: tuple[Compression, int | None]
) -> None:
    """One batch per chunk without a size limit; offsets and sequence numbers continue."""
    codec, level = codec_and_level
    expected, base_offset, base_sequence = [], fields["base_offset"], fields["base_sequence"]
    for rows in sample.chunks:
        place = {"base_offset": base_offset, "base_sequence": base_sequence}
        expected.append(encode_rows(rows, codec=codec, level=level, **fields | place))
        base_offset += len(rows)
        if base_sequence >= 0:
            base_sequence = (base_sequence + len(rows)) % 2**31
    encoded = encode_arrow(
        sample.table, timestamp=sample.default_timestamp, max_bytes=NO_LIMIT, codec=codec, level=level, **fields
    )
    assert encoded == expected


@given(arrow_samples(), st.integers(0, 400) | st.integers(0, 20_000), codecs)
def test_splits_rows_by_size(sample: ArrowSample, max_bytes: int, codec: Compression) -> None:
    rows = [row for chunk in sample.chunks for row in chunk]
    whole = sample.table.combine_chunks()
    assume(len(whole.to_batches()) == 1)
    first = 0
    for batch in encode_arrow(whole, timestamp=sample.default_timestamp, max_bytes=max_bytes, codec=codec):
        count = RecordBatch(batch).count
        behind = first + count
        assert batch == encode_rows(rows[first:behind], base_offset=first, codec=codec)
        if count > 1:
            assert len(encode_rows(rows[first:behind])) <= max_bytes
        if behind < len(rows):
            # The next row would not have fit; a length counts as five bytes, its maximum.
            assert len(encode_rows(rows[first : behind + 1])) + 4 > max_bytes
        first = behind
    assert first == len(rows)


@given(arrow_samples())
def test_record_batch_encodes_like_table(sample: ArrowSample) -> None:
    chunk = sample.table.to_batches()[0]
    encoded = encode_arrow(chunk, timestamp=sample.default_timestamp, max_bytes=NO_LIMIT)
    assert encoded == [encode_rows(sample.chunks[0])]


@given(samples(gaps=False), codecs)
@example(Sample([(b"k", b"v", 5, []), (b"k", b"v", 4, [])], [0, 1], {}), Compression.NONE)
def test_decoded_columns_encode_to_the_same_batch(sample: Sample, codec: Compression) -> None:
    assume(not sample.fields.get("control"))
    fields = {name: value for name, value in sample.fields.items() if name not in ("control", "log_append_time")}
    original = encode_rows(sample.rows, codec=codec, **fields)
    decoded = decode_arrow([RecordBatch(original)])
    assert encode_arrow(decoded, max_bytes=NO_LIMIT, codec=codec, **fields) == [original]


@given(st.data())
def test_headers_of_any_slice_of_any_struct_array(data: st.DataObject) -> None:
    """The list, its structs and their fields may each be slices of longer arrays."""
    count = data.draw(st.integers(1, 12))
    skipped, cut = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 3))
    names = pa.array(
        [f"n{i}" for i in range(skipped + count + cut)], data.draw(st.sampled_from([pa.string(), pa.binary()]))
    )
    values = pa.array([None if i % 3 == 0 else b"v%d" % i for i in range(skipped + count + cut)], pa.binary())
    structs = pa.StructArray.from_arrays([names, values], names=["key", "value"]).slice(skipped, count)
    bounds = sorted(data.draw(st.lists(st.integers(0, count), min_size=2, max_size=8)))
    lists = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), structs)
    first = data.draw(st.integers(0, len(lists) - 1))
    rows = data.draw(st.integers(1, len(lists) - first))
    table = pa.table({"headers": lists, "value": pa.array([b"x"] * len(lists))}).slice(first, rows)
    expected = [
        (
            None,
            b"x",
            -1,
            [(f"n{skipped + i}", values[skipped + i].as_py()) for i in range(bounds[row], bounds[row + 1])],
        )
        for row in range(first, first + rows)
    ]
    assert encode_arrow(table) == [encode_rows(expected)]
