"""Conversion between record batches and Arrow record batches, without a Python object per record.

A separate module, so that users without Arrow do not import pyarrow.
"""

from collections.abc import Iterable
from typing import Any

from headrace.common.extras import requires_extra
from headrace.common.types import Buffer
from headrace.records._batch import NO_SEQUENCE, BatchRecords, RecordBatch
from headrace.records._columns import BinaryColumn, ColumnDecoder, ColumnEncoder
from headrace.records.compression import DEFAULT_MAX_INFLATED_BYTES, Compression

with requires_extra("arrow"):
    import pyarrow as pa


_HEADER_FIELDS = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
HEADERS_TYPE = pa.list_(pa.struct(_HEADER_FIELDS))
_LARGEST_HINT = 64 * 1024 * 1024
_TIMESTAMP_SCALES = {"ms": 1, "us": 1000}
_LAST_SEQUENCE = 2**31 - 1
"""After this sequence number, the next one is 0."""


def records_schema(timestamp_unit: str = "ms") -> pa.Schema:
    """Returns the columns of decoded records. `timestamp_type` is 0 for CreateTime and 1 for LogAppendTime."""
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", HEADERS_TYPE),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp(timestamp_unit, tz="UTC")),
            ("timestamp_type", pa.int32()),
        ]
    )


_SCHEMAS = {unit: records_schema(unit) for unit in _TIMESTAMP_SCALES}


class ArrowDecoder:
    """Collects the records of many batches into one Arrow record batch."""

    def __init__(self, timestamp_unit: str = "ms", size_hint: int = 0, rows_hint: int = 0):
        """Creates an empty decoder. The hints are the approximate numbers of record bytes and of records to add."""
        if timestamp_unit not in _TIMESTAMP_SCALES:
            raise ValueError(f"timestamp_unit must be 'ms' or 'us', not {timestamp_unit!r}")
        self._schema = _SCHEMAS[timestamp_unit]
        self._timestamp_type = self._schema.field("timestamp").type
        self._scale = _TIMESTAMP_SCALES[timestamp_unit]
        self._columns = ColumnDecoder(self._scale, min(size_hint, _LARGEST_HINT), min(rows_hint, _LARGEST_HINT // 8))

    def __len__(self) -> int:
        return self._columns.length

    @property
    def size_in_bytes(self) -> int:
        """The bytes of keys and values so far. An Arrow column is limited to 2 GiB; call `finish` before that."""
        return self._columns.size_in_bytes

    def add(self, records: BatchRecords, min_offset: int = 0, max_records: int = 2**31 - 1) -> int:
        """Appends up to `max_records` records from `min_offset` on. Returns their number."""
        return self._columns.add(records, min_offset, max_records)

    def add_all(
        self,
        batches: list[RecordBatch],
        min_offset: int = 0,
        max_inflated_bytes: int = DEFAULT_MAX_INFLATED_BYTES,
        check_crcs: bool = False,
    ) -> None:
        """Appends the records of many batches, faster than `add` for each; skips control batches."""
        self._columns.add_all(batches, min_offset, max_inflated_bytes, check_crcs)

    def finish(self) -> pa.RecordBatch:
        """Returns the collected records; the decoder is empty again."""
        return pa.RecordBatch.from_arrays(self.finish_arrays(), schema=self._schema)

    def finish_arrays(self) -> list[pa.Array]:
        """Like `finish`, but returns the columns in the order of `records_schema`."""
        columns, self._columns = self._columns, ColumnDecoder(self._scale)
        rows = columns.length
        headers = pa.StructArray.from_arrays(
            [
                _binary_array(columns.header_names, pa.string()),
                _binary_array(columns.header_values, pa.binary()),
            ],
            fields=_HEADER_FIELDS,
        )
        return [
            _binary_array(columns.keys, pa.binary()),
            _binary_array(columns.values, pa.binary()),
            pa.Array.from_buffers(
                HEADERS_TYPE,
                rows,
                [None, pa.py_buffer(columns.header_offsets)],
                null_count=0,
                children=[headers],
            ),
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)], null_count=0),
            pa.Array.from_buffers(self._timestamp_type, rows, [None, pa.py_buffer(columns.timestamps)], null_count=0),
            pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(columns.timestamp_types)], null_count=0),
        ]


def _binary_array(column: BinaryColumn, arrow_type: pa.DataType) -> pa.Array:
    validity = pa.py_buffer(column.validity) if column.nulls else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(arrow_type, column.length, buffers, null_count=column.nulls)


def decode_arrow(
    batches: Iterable[RecordBatch],
    *,
    min_offset: int = 0,
    timestamp_unit: str = "ms",
    max_inflated_bytes: int = DEFAULT_MAX_INFLATED_BYTES,
    check_crcs: bool = False,
) -> pa.RecordBatch:
    """Returns the records of one or many batches as one Arrow record batch; skips control batches."""
    batches = list(batches)
    decoder = ArrowDecoder(timestamp_unit, size_hint=sum(batch.size_in_bytes for batch in batches))
    decoder.add_all(batches, min_offset, max_inflated_bytes, check_crcs=check_crcs)
    return decoder.finish()


def encode_arrow(
    data: pa.RecordBatch | pa.Table,
    *,
    timestamp: int = -1,
    max_bytes: int = 1024 * 1024,
    base_offset: int = 0,
    codec: Compression = Compression.NONE,
    level: int | None = None,
    base_sequence: int = NO_SEQUENCE,
    **fields: Any,
) -> list[bytearray]:
    """Encodes the rows of `data` as batches of at most `max_bytes` before compression, but at least one row.

    - Columns are selected by name: `value` (required), `key`, `headers`, `timestamp`. Other columns are ignored.
    - Keys and values are binary or string. Rows without a timestamp get `timestamp`.
    - Offsets continue from batch to batch, and sequence numbers too if `base_sequence` is set.
    - `fields` are header fields of the batches, and `spare`, a list of buffers to use first.
    """
    chunks = data.to_batches() if isinstance(data, pa.Table) else [data]
    if "value" not in data.schema.names:
        raise ValueError(f"the data has no column 'value'; its columns are {data.schema.names}")
    encoded: list[bytearray] = []
    for chunk in chunks:
        if chunk.num_rows == 0:
            continue
        encoded += open_encoder(chunk, timestamp).encode_all(
            default_timestamp=timestamp,
            max_bytes=max_bytes,
            base_offset=base_offset,
            codec=codec,
            level=level,
            base_sequence=base_sequence,
            **fields,
        )
        base_offset += chunk.num_rows
        if base_sequence >= 0:
            base_sequence = (base_sequence + chunk.num_rows) & _LAST_SEQUENCE
    return encoded


def open_encoder(chunk: pa.RecordBatch, timestamp: int = -1) -> ColumnEncoder:
    """Returns an encoder for the rows of `chunk`, with the columns of `encode_arrow`. Timestamps that are null become
    `timestamp`."""
    columns = {name: chunk.column(index) for index, name in enumerate(chunk.schema.names)}
    headers = columns.get("headers")
    timestamps = columns.get("timestamp")
    times: Buffer | None = None
    shift = 0
    if timestamps is not None and not pa.types.is_null(timestamps.type):
        times_ms = _timestamps_ms(timestamps, timestamp)
        times, shift = times_ms.buffers()[1], times_ms.offset
    return ColumnEncoder(
        chunk.num_rows,
        _binary_source(columns["key"], "key") if "key" in columns else None,
        _binary_source(columns["value"], "value"),
        None if headers is None else _headers_source(headers),
        times,
        shift,
    )


def _timestamps_ms(column: pa.Array, default: int) -> pa.Array:
    """Converts the column to milliseconds; a null becomes the default."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        if kind.unit != "ms":
            # Finer units lose their fractions; seconds that overflow as milliseconds raise an error.
            column = column.cast(pa.timestamp("ms", tz=kind.tz), safe=kind.unit == "s")
        column = column.cast(pa.int64())
    elif pa.types.is_integer(kind):
        column = column.cast(pa.int64())
    else:
        raise TypeError(f"column 'timestamp' has type {kind}; expected a timestamp or milliseconds as an integer")
    return column.fill_null(default) if column.null_count else column


def _binary_source(column: pa.Array, name: str) -> tuple[Any, Any, Any, int] | None:
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        try:
            column = column.cast(pa.binary())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise TypeError(f"column {name!r} has type {kind}; expected binary or string") from None
    validity, offsets, data = column.buffers()
    return validity if column.null_count else None, offsets, data, column.offset


def _headers_source(column: pa.Array) -> tuple[Any, Any, int, Any, Any] | None:
    kind = column.type
    if pa.types.is_null(kind):
        return None
    is_structs = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
    if not is_structs or sorted(field.name for field in kind.value_type) != ["key", "value"]:
        raise TypeError(f"column 'headers' has type {kind}; expected a list of structs of 'key' and 'value'")
    structs = column.values
    names, values = structs.field("key"), structs.field("value")
    if names.null_count or structs.null_count:
        # Check only the headers of these rows: the column may be a slice of a larger array.
        used = column.flatten()
        if used.null_count or used.field("key").null_count:
            raise ValueError("column 'headers' has a header without a name")
    validity, offsets = column.buffers()[:2]
    return (
        validity if column.null_count else None,
        offsets,
        column.offset,
        _binary_source(names, "headers.name"),
        _binary_source(values, "headers.value"),
    )
