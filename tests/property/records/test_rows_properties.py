"""Rows compared with the reference: same bytes, same records, for every codec."""

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property.records.strategies import (
    MAX_INT32,
    MAX_INT64,
    Sample,
    codecs,
    codecs_with_levels,
    row_lists,
    samples,
    timestamps,
)
from tests.support.records import reference_batch as reference

from headrace.common.errors import InvalidRecordError
from headrace.records import (
    BatchBuilder,
    Compression,
    Record,
    RecordBatch,
    decode_rows,
    encode_empty_batch,
    encode_rows,
    recompress,
    split_batches,
    walk_headers,
)
from headrace.records.compression import LEVELS

WIDEST_TIMESTAMPS = Sample([(None, None, -1, []), (None, None, MAX_INT64, []), (None, None, 0, [])], [0, 1, 2], {})


def build(sample: Sample, codec: Compression = Compression.NONE, level: int | None = None) -> bytearray:
    builder = BatchBuilder(codec=codec, level=level, size_hint=0, **sample.fields)
    for (key, value, timestamp, headers), offset in zip(sample.rows, sample.offsets, strict=True):
        size_before = builder.size_in_bytes
        assert builder.append(key, value, timestamp, headers, offset) == builder.size_in_bytes - size_before
        assert builder.next_offset == offset + 1
    assert len(builder) == len(sample.rows)
    return builder.build()


@given(samples())
@example(WIDEST_TIMESTAMPS)
def test_builder_matches_reference(sample: Sample) -> None:
    assert build(sample) == sample.reference_batch


@given(samples(gaps=False))
def test_encode_rows_matches_reference(sample: Sample) -> None:
    assert encode_rows(sample.rows, **sample.fields) == sample.reference_batch


@given(samples())
@example(WIDEST_TIMESTAMPS)
def test_decodes_batches_of_reference(sample: Sample) -> None:
    batch = RecordBatch(sample.reference_batch)
    batch.check_crc()
    header = reference.decode_header(sample.reference_batch)
    assert (batch.base_offset, batch.leader_epoch, batch.magic, batch.crc, batch.attributes) == (
        header.base_offset,
        header.leader_epoch,
        header.magic,
        header.crc,
        header.attributes,
    )
    assert (batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp, batch.count) == (
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.count,
    )
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
    assert (batch.last_offset, batch.next_offset) == (sample.offsets[-1], sample.offsets[-1] + 1)
    assert batch.is_log_append_time == sample.fields.get("log_append_time", False)
    assert batch.is_transactional == sample.fields.get("transactional", False)
    assert batch.is_control == sample.fields.get("control", False)
    assert not batch.is_compressed
    assert batch.delete_horizon_ms is None
    assert batch.raw == sample.reference_batch
    assert decode_rows(batch.records()) == sample.records


@given(samples(), codecs_with_levels())
def test_reference_decodes_our_batches(sample: Sample, codec_and_level: tuple[Compression, int | None]) -> None:
    codec, level = codec_and_level
    packed = bytes(build(sample, codec, level))
    header, rows = reference.decode(packed)
    plain_header, plain_rows = reference.decode(sample.reference_batch)
    assert rows == plain_rows
    assert header.attributes == plain_header.attributes | codec
    assert header._replace(length=0, crc=0, attributes=0) == plain_header._replace(length=0, crc=0, attributes=0)


@given(samples(), codecs_with_levels())
def test_every_codec_round_trips(sample: Sample, codec_and_level: tuple[Compression, int | None]) -> None:
    codec, level = codec_and_level
    packed = build(sample, codec, level)
    batch = RecordBatch(packed)
    batch.check_crc()
    assert batch.codec == codec
    assert batch.is_compressed == bool(codec)
    records = batch.records()
    assert decode_rows(records) == sample.records
    assert records.inflated_bytes == len(sample.reference_batch) - reference.HEADER_BYTES


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (codec, level)
        for codec, (lowest, highest, default) in LEVELS.items()
        for level in (lowest, *range(max(lowest, -3), min(highest, 19) + 1), highest)
    ],
)
def test_decodes_batch_of_each_level(codec: Compression, level: int) -> None:
    rows = [(b"key", b"value %d" % i * 9, 1000 + i, [("name", b"x")]) for i in range(40)]
    batch = encode_rows(rows, codec=codec, level=level)
    _, decoded = reference.decode(bytes(batch))
    assert [(row.key, row.value, row.timestamp) for row in decoded] == [row[:3] for row in rows]
    assert [record.value for record in decode_rows(RecordBatch(batch).records())] == [row[1] for row in rows]


@given(samples(), codecs, codecs_with_levels())
def test_recompress_changes_only_codec(
    sample: Sample, first: Compression, second: tuple[Compression, int | None]
) -> None:
    codec, level = second
    again = recompress(RecordBatch(build(sample, first)).records(), codec, level)
    assert again == build(sample, codec, level)
    assert recompress(RecordBatch(again).records(), Compression.NONE) == sample.reference_batch


@given(samples())
def test_scan_results(sample: Sample) -> None:
    records = RecordBatch(sample.reference_batch).records()
    expected = sample.records
    assert len(records) == len(expected)
    assert records.offsets() == sample.offsets
    assert records.timestamps() == [record.timestamp for record in expected]
    assert [records.key(i) for i in range(len(expected))] == [record.key for record in expected]
    assert [records.value(i) for i in range(len(expected))] == [record.value for record in expected]
    newest = max(expected, key=lambda record: record.timestamp)
    assert records.max_timestamp() == (newest.timestamp, newest.offset)


@given(samples(), timestamps, st.integers(0, 20))
def test_first_record_at_or_after_a_timestamp(sample: Sample, timestamp: int, skipped: int) -> None:
    min_offset = sample.offsets[min(skipped, len(sample.offsets) - 1)]
    matches = [
        (record.timestamp, record.offset)
        for record in sample.records
        if record.timestamp >= timestamp and record.offset >= min_offset
    ]
    records = RecordBatch(sample.reference_batch).records()
    assert records.first_at_or_after(timestamp, min_offset) == (matches[0] if matches else None)


@given(samples(), st.data())
def test_rows_from_offset(sample: Sample, data: st.DataObject) -> None:
    near = st.sampled_from(sample.offsets).flatmap(lambda offset: st.integers(max(0, offset - 2), offset + 2))
    min_offset = data.draw(near | st.sampled_from([0, MAX_INT64]))
    records = RecordBatch(sample.reference_batch).records()
    assert decode_rows(records, min_offset) == [record for record in sample.records if record.offset >= min_offset]


@given(samples())
def test_appendable_requires_consecutive_offsets(sample: Sample) -> None:
    records = RecordBatch(sample.reference_batch).records()
    dense = sample.offsets == list(range(sample.offsets[0], sample.offsets[0] + len(sample.offsets)))
    if dense and sample.offsets[0] == sample.fields["base_offset"]:
        assert records.check_appendable() == max(record.timestamp for record in sample.records)
    else:
        with pytest.raises(InvalidRecordError, match=r"last offset delta|offsets must be consecutive"):
            records.check_appendable()


@given(samples())
def test_empty_batch_keeps_producer_and_offset(sample: Sample) -> None:
    before = reference.decode_header(sample.reference_batch)
    empty = encode_empty_batch(RecordBatch(build(sample, Compression.ZSTD)))
    after, rows = reference.decode(bytes(empty))
    assert rows == []
    assert len(empty) == reference.HEADER_BYTES
    assert after == before._replace(length=49, crc=after.crc, count=0, base_timestamp=-1)
    records = RecordBatch(empty).records()
    assert (len(records), decode_rows(records), records.max_timestamp()) == (0, [], None)
    assert records.first_at_or_after(-1) is None
    assert recompress(records, Compression.GZIP) == empty


@given(
    samples(),
    st.integers(0, MAX_INT64),
    st.integers(-1, MAX_INT32),
    timestamps,
    st.booleans(),
    st.tuples(st.integers(-1, MAX_INT64), st.integers(-1, 2**15 - 1), st.integers(-1, MAX_INT32), st.booleans()),
    codecs,
)
def test_patching_keeps_a_batch_valid(
    sample: Sample,
    base_offset: int,
    leader_epoch: int,
    max_timestamp: int,
    log_append_time: bool,
    producer: tuple[int, int, int, bool],
    codec: Compression,
) -> None:
    buffer = build(sample, codec)
    batch = RecordBatch(buffer)
    header = reference.decode_header(buffer)

    batch.patch_base_offset(base_offset)
    batch.patch_leader_epoch(leader_epoch)
    header = header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    assert reference.decode_header(buffer) == header

    batch.patch_max_timestamp(header.max_timestamp, batch.is_log_append_time)
    assert reference.decode_header(buffer) == header

    batch.patch_max_timestamp(max_timestamp, log_append_time)
    attributes = header.attributes & ~reference.LOG_APPEND_TIME_BIT | reference.LOG_APPEND_TIME_BIT * log_append_time
    changed = (attributes, max_timestamp) != (header.attributes, header.max_timestamp)
    header = header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=batch.crc)
    assert reference.decode_header(buffer) == header
    assert batch.crc == reference.crc32c(buffer[reference.ATTRIBUTES_AT :])
    if changed:
        assert buffer[reference.HEADER_BYTES :] == build(sample, codec)[reference.HEADER_BYTES :]

    producer_id, producer_epoch, base_sequence, transactional = producer
    batch.patch_producer(producer_id, producer_epoch, base_sequence, transactional)
    attributes = attributes & ~reference.TRANSACTIONAL_BIT | reference.TRANSACTIONAL_BIT * transactional
    assert reference.decode_header(buffer) == header._replace(
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        crc=batch.crc,
    )
    batch.check_crc()


@given(st.lists(samples(), min_size=1, max_size=4), codecs, st.integers(0, 10**6))
def test_splits_batches(parts: list[Sample], codec: Compression, cut: int) -> None:
    batches = [bytes(build(part, codec)) for part in parts]
    prefix = b"elsewhere"
    buffer = prefix + b"".join(batches)
    found = split_batches(buffer, len(prefix))
    assert [bytes(batch.raw) for batch in found] == batches
    assert [batch.position for batch in found] == [
        len(prefix) + sum(map(len, batches[:i])) for i in range(len(batches))
    ]
    assert [decode_rows(batch.records()) for batch in found] == [part.records for part in parts]

    # Truncated anywhere in the last batch: complete batches are returned, the rest is omitted.
    short = buffer[: -1 - cut % len(batches[-1])]
    assert [bytes(batch.raw) for batch in split_batches(short, len(prefix), allow_partial=True)] == batches[:-1]


@given(row_lists, st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 500), st.integers(0, 10**6))
def test_walk_finds_batch_of_offset(rows: list, gaps: list[int], target: int, missing: int) -> None:
    """Generates batches with gaps between their base offsets."""
    batches, base_offset = [], 0
    for gap in gaps:
        base_offset += gap
        batches.append(encode_rows(rows, base_offset=base_offset))
        base_offset += len(rows)
    buffer = b"".join(batches)
    expected: object = len(buffer)
    position = 0
    for batch in batches:
        header = reference.decode_header(batch)
        if header.base_offset + header.last_offset_delta >= target:
            last_offset = header.base_offset + header.last_offset_delta
            expected = (position, len(batch), header.base_offset, last_offset, header.max_timestamp)
            # Only the header needs to be in the buffer.
            missing %= len(batch) - reference.HEADER_BYTES + 1
            buffer = buffer[: position + len(batch) - missing]
            break
        position += len(batch)
    assert walk_headers(buffer, 0, target) == expected
    without_header = buffer[: position + reference.HEADER_BYTES - 1]
    assert walk_headers(without_header, 0, target) == min(position, len(without_header))


@given(row_lists)
def test_records_pickle_and_compare_by_content(rows: list) -> None:
    records = decode_rows(RecordBatch(encode_rows(rows)).records())
    assert pickle.loads(pickle.dumps(records)) == records
    assert len(set(records)) == len(records)
    assert records[0] != Record(b"something", b"else")
