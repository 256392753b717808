"""Records, batches and Arrow tables for Hypothesis."""

from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st
from tests.support.records import reference_batch as reference

from headrace.records import Compression, Record
from headrace.records.arrow import HEADERS_TYPE
from headrace.records.compression import LEVELS

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1

HeaderList = list[tuple[str, bytes | None]]
RowTuple = tuple[bytes | None, bytes | None, int, HeaderList]

# Random sizes rarely hit the limits of one- and two-byte varints.
payloads = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.builds(lambda size, byte: bytes([byte]) * size, st.sampled_from([63, 64, 65, 8191, 8192]), st.integers(0, 255)),
)
timestamps = st.one_of(
    st.integers(1_500_000_000_000, 1_500_000_001_000),
    st.integers(-1, 300),
    st.sampled_from([-1, 0, 2**31, MAX_INT64 - 1, MAX_INT64]),
)
header_lists = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=8)), max_size=3)
row_tuples = st.tuples(payloads, payloads, timestamps, header_lists)
row_lists = st.lists(row_tuples, min_size=1, max_size=12)
codecs = st.sampled_from(list(Compression))


@st.composite
def codecs_with_levels(draw: st.DrawFn) -> tuple[Compression, int | None]:
    codec = draw(codecs)
    if codec not in LEVELS:
        return codec, None
    lowest, highest, _ = LEVELS[codec]
    return codec, draw(st.none() | st.sampled_from([lowest, highest]) | st.integers(max(lowest, -5), min(highest, 12)))


header_fields = st.fixed_dictionaries(
    {
        "base_offset": st.integers(0, 2**62) | st.just(0),
        "leader_epoch": st.integers(-1, MAX_INT32),
        "producer_id": st.integers(-1, MAX_INT64),
        "producer_epoch": st.integers(-1, 2**15 - 1),
        "base_sequence": st.integers(-1, MAX_INT32),
        "transactional": st.booleans(),
    }
)


class Sample(NamedTuple):
    """Rows with their offsets, and the header fields of their batch."""

    rows: list[RowTuple]
    offsets: list[int]
    fields: dict[str, Any]

    @property
    def reference_rows(self) -> list[reference.Row]:
        return [
            reference.Row(key, value, timestamp, tuple((name.encode(), data) for name, data in headers), offset)
            for (key, value, timestamp, headers), offset in zip(self.rows, self.offsets, strict=True)
        ]

    @property
    def records(self) -> list[Record]:
        """Returns the expected records of the batch."""
        log_append_time = bool(self.fields.get("log_append_time"))
        newest = max(timestamp for _, _, timestamp, _ in self.rows)
        return [
            Record(key, value, newest if log_append_time else timestamp, headers, offset, int(log_append_time))
            for (key, value, timestamp, headers), offset in zip(self.rows, self.offsets, strict=True)
        ]

    @property
    def reference_batch(self) -> bytes:
        return reference.encode(self.reference_rows, **self.fields)


@st.composite
def samples(draw: st.DrawFn, gaps: bool = True) -> Sample:
    """With `gaps`, offsets may have gaps, as in a compacted log."""
    rows = draw(row_lists)
    fields = draw(header_fields)
    fields |= {"log_append_time": draw(st.booleans()), "control": draw(st.booleans())}
    steps = st.integers(1, 1000) if gaps and draw(st.booleans()) else st.just(1)
    offset = fields["base_offset"] + (draw(st.integers(0, MAX_INT32 - 100_000)) if gaps and draw(st.booleans()) else 0)
    offsets = [offset]
    for _ in rows[1:]:
        offsets.append(offsets[-1] + draw(steps))
    return Sample(rows, offsets, fields)


BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
TIMESTAMP_TYPES = [pa.int64(), *(pa.timestamp(unit, tz) for unit in ("s", "ms", "us", "ns") for tz in (None, "UTC"))]
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@st.composite
def _payload_column(draw: st.DrawFn, rows: int, kind: pa.DataType) -> tuple[list[bytes | None], pa.Array]:
    if kind in BINARY_TYPES:
        values = draw(st.lists(payloads, min_size=rows, max_size=rows))
        return values, pa.array(values, kind)
    texts = draw(st.lists(st.none() | st.text(max_size=10), min_size=rows, max_size=rows))
    return [None if text is None else text.encode() for text in texts], pa.array(texts, kind)


@st.composite
def _header_column(draw: st.DrawFn, rows: int) -> tuple[list[HeaderList], pa.Array]:
    lists = draw(st.lists(st.none() | header_lists, min_size=rows, max_size=rows))
    structs = [headers and [{"key": name, "value": value} for name, value in headers] for headers in lists]
    return [headers or [] for headers in lists], pa.array(structs, HEADERS_TYPE)


@st.composite
def _timestamp_column(draw: st.DrawFn, rows: int, kind: pa.DataType, default: int) -> tuple[list[int], pa.Array]:
    unit = "ms" if kind == pa.int64() else kind.unit
    ticks = draw(st.lists(st.none() | st.integers(0, 4 * 10**9), min_size=rows, max_size=rows))
    expected = [default if tick is None else tick * 1000 // PER_SECOND[unit] for tick in ticks]
    return expected, pa.array(ticks, pa.int64()).cast(kind)


class ArrowSample(NamedTuple):
    """An Arrow table, and its rows by chunk."""

    table: pa.Table
    chunks: list[list[RowTuple]]
    default_timestamp: int


@st.composite
def arrow_samples(draw: st.DrawFn) -> ArrowSample:
    """Generates tables of one to three chunks, whose arrays are slices of larger ones."""
    default = draw(st.integers(-1, 10**13))
    value_type = draw(st.sampled_from(BINARY_TYPES + TEXT_TYPES))
    key_type = draw(st.none() | st.sampled_from([*BINARY_TYPES, *TEXT_TYPES, pa.null()]))
    timestamp_type = draw(st.none() | st.sampled_from([*TIMESTAMP_TYPES, pa.null()]))
    with_headers = draw(st.booleans())
    batches, chunks = [], []
    for _ in range(draw(st.integers(1, 3))):
        rows, before, behind = draw(st.integers(1, 10)), draw(st.integers(0, 9)), draw(st.integers(0, 3))
        total = before + rows + behind
        columns: dict[str, pa.Array] = {"other": pa.array(range(total))}
        keys: list[bytes | None] = [None] * total
        times: list[int] = [default] * total
        headers: list[HeaderList] = [[]] * total
        values, columns["value"] = draw(_payload_column(total, value_type))
        if key_type == pa.null():
            columns["key"] = pa.nulls(total)
        elif key_type is not None:
            keys, columns["key"] = draw(_payload_column(total, key_type))
        if timestamp_type == pa.null():
            columns["timestamp"] = pa.nulls(total)
        elif timestamp_type is not None:
            times, columns["timestamp"] = draw(_timestamp_column(total, timestamp_type, default))
        if with_headers:
            headers, columns["headers"] = draw(_header_column(total))
        batches.append(pa.RecordBatch.from_pydict(columns).slice(before, rows))
        chunks.append(list(zip(keys, values, times, headers, strict=True))[before : before + rows])
    return ArrowSample(pa.Table.from_batches(batches), chunks, default)
