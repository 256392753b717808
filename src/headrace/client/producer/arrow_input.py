"""Reads the data that `send_arrow` accepts: Arrow tables, and everything that exports Arrow data.

Polars, pandas, DuckDB and others implement the Arrow PyCapsule interface. Their columns may have types that the encoder
does not read (views, dictionaries, large lists). They are converted once, before rows are split and encoded.
"""

from typing import Any

from headrace.client.errors import IllegalArgumentError
from headrace.common.extras import requires_extra
from headrace.records.arrow import HEADERS_TYPE

with requires_extra("arrow"):
    import pyarrow as pa

__all__ = ["read_table"]

_COLUMNS = ("value", "key", "headers", "timestamp", "partition")


def read_table(data: Any) -> pa.Table | pa.RecordBatch:
    """Returns the columns to send, with types that the encoder reads. Raises TypeError or IllegalArgumentError."""
    table = data if isinstance(data, pa.Table | pa.RecordBatch) else _import(data)
    names = table.schema.names
    if "value" not in names:
        raise IllegalArgumentError(f"The Arrow data has no column 'value'; its columns are {names}")
    columns = {}
    for name in _COLUMNS:
        count = names.count(name)
        if count > 1:
            raise IllegalArgumentError(f"The Arrow data has {count} columns {name!r}: expected one")
        if count:
            columns[name] = table.column(names.index(name))
    converted = {name: _convert(name, column) for name, column in columns.items()}
    if len(columns) == len(names) and all(converted[name] is columns[name] for name in columns):
        return table
    make = pa.table if isinstance(table, pa.Table) else pa.record_batch
    return make(list(converted.values()), names=list(converted))


def _import(data: Any) -> pa.Table | pa.RecordBatch:
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        if hasattr(data, "__arrow_c_array__"):
            return pa.record_batch(data)
    except pa.ArrowInvalid as error:
        if "non-struct type" not in str(error):
            raise
        raise TypeError(
            f"send_arrow() expects a table with a column 'value', not a single column of type {type(data).__name__}"
        ) from None
    raise TypeError(
        "send_arrow() expects a pyarrow Table or RecordBatch, or an object with __arrow_c_stream__ or "
        f"__arrow_c_array__, such as a Polars or pandas data frame, not {type(data).__name__}"
    )


def _convert(name: str, column: Any) -> Any:
    """Returns a column (an Array or a ChunkedArray) with a type that the encoder reads."""
    if name in ("key", "value"):
        return _convert_binary(name, column)
    if name == "headers":
        return _convert_headers(column)
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _convert_binary(name: str, column: Any) -> Any:
    kind = column.type
    if _is_read_directly(kind):
        return column
    if pa.types.is_dictionary(kind) and _is_view(kind.value_type):
        return _decode_views(column)
    try:
        return column.cast(pa.large_binary())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise TypeError(
            f"column {name!r} has type {kind}; expected binary or string. Convert it, for example to JSON, before it "
            "is sent"
        ) from None


def _is_read_directly(kind: Any) -> bool:
    """Returns True for types that the encoder reads, or casts without copying the data."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_string(kind)
        or types.is_large_binary(kind)
        or types.is_large_string(kind)
        or types.is_null(kind)
    )


def _is_view(kind: Any) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _decode_views(column: Any) -> Any:
    """Decodes a dictionary of views, which Arrow's own functions do not."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    decoded = [chunk.dictionary.cast(pa.large_binary()).take(chunk.indices) for chunk in chunks]
    return pa.chunked_array(decoded, pa.large_binary()) if isinstance(column, pa.ChunkedArray) else decoded[0]


def _convert_headers(column: Any) -> Any:
    kind = column.type
    if kind.equals(HEADERS_TYPE) or pa.types.is_null(kind):
        return column
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if is_list and pa.types.is_struct(kind.value_type):
        fields = sorted(field.name for field in kind.value_type)
        if fields == ["key", "value"]:
            try:
                return column.cast(HEADERS_TYPE)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
                pass  # the error below names the type
    raise TypeError(
        f"column 'headers' has type {kind}; expected a list of structs of 'key' (string) and 'value' (binary)"
    )
