"""Turns the rows that an Arrow flow returns into records: topic, key, value, headers. Runs in Spark's Python workers.

This is the counterpart of `outputs` and `dead_letters` for Arrow: both give the same bytes for the same rows. Pure.
"""

import base64
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.dead_letters import MAX_CHARS
from headrace.pipelines.json_output import column_to_json, rows_to_json
from headrace.pipelines.pipeline import AT, DEAD_LETTERS, SEQ, SOURCE, SOURCE_COLUMNS, Output, PipelineError, Topic
from headrace.spark.columns import normalize

__all__ = ["as_table", "check_rows", "output_records"]

_NOT_IN_JSON = ("key", "headers", AT, SEQ, SOURCE)


def check_rows(returned: Any, outputs: Mapping[str, tuple[Output, ...]]) -> dict[str, pa.Table]:
    """Returns the rows by output. Raises `PipelineError` if `transform` returned something else."""
    if not isinstance(returned, Mapping):
        raise PipelineError(f"transform returned {type(returned).__name__}; expected rows by output name")
    tables = {}
    for output, rows in returned.items():
        if output not in outputs:
            raise PipelineError(
                f"transform returned an unknown output {output!r}; expected one of: {', '.join(outputs)}"
            )
        table = as_table(output, rows)
        if output == DEAD_LETTERS:
            missing = [name for name in ("reason", *SOURCE_COLUMNS) if name not in table.column_names]
            if missing:
                raise PipelineError(
                    f"dead letters need the columns of the source and 'reason'; missing: {', '.join(missing)}"
                )
        if table.num_rows:
            tables[output] = table
    return tables


def as_table(output: str, rows: Any) -> pa.Table:
    """Returns rows as an Arrow table. Views of text and bytes, as Polars returns them, become plain columns, because
    few functions of pyarrow support views."""
    if isinstance(rows, pa.RecordBatch):
        table = pa.Table.from_batches([rows])
    elif isinstance(rows, pa.Table):
        table = rows
    elif hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        table = pa.table(rows)
    else:
        raise PipelineError(
            f"output {output!r}: transform returned {type(rows).__name__}; expected a pyarrow RecordBatch or Table"
        )
    schema = pa.schema([pa.field(field.name, _without_views(field.type)) for field in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_without_views(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_without_views(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _without_views(field.type)) for field in kind])
    return kind


def output_records(output: str, topic: Topic, table: pa.Table) -> pa.RecordBatch:
    """Returns the rows of an output as records for a topic, in the same order."""
    if output == DEAD_LETTERS:
        return _dead_letters(table)
    columns: dict[str, pa.Array] = {}
    if topic.name is None:
        if "topic" not in table.column_names:
            raise PipelineError(f"output {output!r} routes by the column 'topic', which the rows do not have")
        columns["topic"] = _array(table, "topic").cast(pa.string())
        if columns["topic"].null_count:
            raise PipelineError(f"output {output!r}: the column 'topic' is null in some rows; expected a topic")
    key = topic.key or "key"
    if key in table.column_names:
        columns["key"] = _bytes(_array(table, key))
    elif topic.key is not None:
        raise PipelineError(f"output {output!r}: the key column {key!r} is not in the rows")
    columns["value"] = _value(topic, table)
    if "headers" in table.column_names:
        columns["headers"] = _array(table, "headers")
    return normalize(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), topic.name is None)


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _value(topic: Topic, table: pa.Table) -> pa.Array:
    if "value" in table.column_names:
        return _bytes(_array(table, "value"))
    excluded = (*_NOT_IN_JSON, "topic") if topic.name is None else _NOT_IN_JSON
    # A column named `key` is left out of the value; a column that `Topic.key` names is not.
    return rows_to_json(table.select([n for n in table.column_names if n not in excluded or n == topic.key]))


def _bytes(column: pa.Array) -> pa.Array:
    """Returns a column as text or bytes: nested types as JSON, all other types as text."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return column
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        in_utc = column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us"))
        text = pc.strftime(in_utc, "%Y-%m-%d %H:%M:%S")
        return pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else f"{value:f}" for value in column.to_pylist()], pa.string())
    text = column_to_json(column)
    return text if pa.types.is_nested(kind) else pc.utf8_trim(text, '"')


# ---- dead letters


def _dead_letters(table: pa.Table) -> pa.RecordBatch:
    """Returns rows with a `reason` as dead letters. See `dead_letters` for the format."""
    keys = _array(table, "key").cast(pa.binary()).to_pylist()
    values = _array(table, "value").cast(pa.binary()).to_pylist()
    key_texts, value_texts = [_full_text(key) for key in keys], [_full_text(value) for value in values]
    letters = pa.table(
        {
            "reason": _array(table, "reason").cast(pa.string()),
            "topic": _array(table, "topic"),
            "partition": _array(table, "partition"),
            "offset": _array(table, "offset"),
            "timestamp": _milliseconds(_array(table, "timestamp")),
            "key": _short(key_texts),
            "key_encoding": _encodings(keys),
            "value": _short(value_texts),
            "encoding": _encodings(values),
            "value_bytes": pa.array(
                [
                    len(value) if text is not None and len(text) > MAX_CHARS else None
                    for value, text in zip(values, value_texts, strict=True)
                ],
                pa.int64(),
            ),
        }
    )
    short_keys = pa.array([key if key is not None and len(key) <= MAX_CHARS else None for key in keys], pa.binary())
    return pa.RecordBatch.from_arrays([short_keys, rows_to_json(letters)], names=["key", "value"])


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _full_text(content: bytes | None) -> str | None:
    if content is None:
        return None
    return content.decode() if _is_utf8(content) else base64.b64encode(content).decode()


def _short(texts: list[str | None]) -> pa.Array:
    return pa.array([None if text is None else text[:MAX_CHARS] for text in texts], pa.string())


def _encodings(contents: list[bytes | None]) -> pa.Array:
    return pa.array(["base64" if c is not None and not _is_utf8(c) else None for c in contents], pa.string())


def _milliseconds(timestamps: pa.Array) -> pa.Array:
    in_ms = pc.floor_temporal(timestamps.cast(pa.timestamp("us")), unit="millisecond")
    return in_ms.cast(pa.timestamp("ms")).cast(pa.int64())
