"""The columns of the source, and the selection of columns with `.schema(...)`.

Runs in the driver's planners (`source_schema`, `selected_columns`) and in tasks (`RowsBuilder`, which builds the Arrow
record batches that Spark expects).

Invariant: a record batch has exactly the Arrow schema that Spark derives from the frame's schema, because Spark
compares them.
"""

from array import array
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.common.errors import ConfigError
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client.consumer.range_client import RangeColumns

__all__ = ["RowsBuilder", "columns_schema", "repeat", "selected_columns", "source_schema"]

HEADERS = "headers"
_HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: _HEADERS_TYPE,
}
_BY_LOWER_NAME = {name.lower(): name for name in _COLUMNS}


def source_schema(include_headers: bool) -> StructType:
    """Returns the columns that are read if the user does not select any."""
    return StructType(
        [StructField(name, kind) for name, kind in _COLUMNS.items() if include_headers or name != HEADERS]
    )


def columns_schema(names: Collection[str]) -> StructType:
    """Returns the schema of some of the source's columns, in the source's order."""
    return StructType([StructField(name, kind) for name, kind in _COLUMNS.items() if name in names])


def selected_columns(schema: StructType) -> list[str]:
    """Returns the source's columns that a schema selects, in the schema's order. Raises for unknown columns and types.

    Headers that are selected by name do not need `includeHeaders`.
    """
    columns: list[str] = []
    for field in schema.fields:
        name = _BY_LOWER_NAME.get(field.name.lower())
        if name is None:
            raise ConfigError(
                f"the schema has an unknown column {field.name!r}: expected some of {', '.join(_COLUMNS)}"
            )
        if not _is_same(field.dataType, _COLUMNS[name]):
            raise ConfigError(
                f"column {field.name!r} of the schema has type {field.dataType.simpleString()}: expected "
                f"{_COLUMNS[name].simpleString()}"
            )
        columns.append(name)
    return columns


def _is_same(left: DataType, right: DataType) -> bool:
    """Returns whether two types are equal, apart from nullability, which Spark decides."""
    return left.simpleString().lower() == right.simpleString().lower()


class RowsBuilder:
    """Builds Arrow record batches of the selected columns. Each task has its own."""

    def __init__(self, schema: StructType, tp: TopicPartition):
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._tp = tp
        self._constants: dict[str, pa.Array] = {}
        builders: dict[str, Callable[[RangeColumns, pa.DataType], Any]] = {
            "key": lambda columns, _: columns.keys,
            "value": lambda columns, _: columns.values,
            "topic": lambda columns, kind: self._constant("topic", tp.topic, kind, len(columns)),
            "partition": lambda columns, kind: self._constant("partition", tp.partition, kind, len(columns)),
            "offset": lambda columns, _: columns.offsets,
            "timestamp": lambda columns, _: columns.timestamps,
            "timestampType": lambda columns, _: columns.timestamp_types,
            HEADERS: lambda columns, kind: _headers(columns.headers, kind),
        }
        self._builders = [builders[name] for name in selected_columns(schema)]
        self._types = [field.type for field in self._schema]

    def build(self, columns: "RangeColumns") -> "pa.RecordBatch":
        import pyarrow as pa

        arrays = [build(columns, kind) for build, kind in zip(self._builders, self._types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, value: str | int, kind: "pa.DataType", rows: int) -> "pa.Array":
        repeated = self._constants.get(name)
        if repeated is None or len(repeated) < rows:
            repeated = self._constants[name] = repeat(value, kind, rows + rows // 4)
        return repeated.slice(0, rows)


def repeat(value: str | int, kind: "pa.DataType", rows: int) -> "pa.Array":
    """Returns an array with one value in every row. PyArrow would import pandas to convert a Python object, which takes
    a second."""
    import pyarrow as pa

    if kind == pa.int32():
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(array("i", [int(value)]) * rows)])
    if kind == pa.string():
        text = str(value).encode()
        ends = array("i", [len(text) * row for row in range(rows + 1)])
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(text * rows)])
    return pa.repeat(pa.scalar(value, kind), rows)


def _headers(headers: "pa.ListArray", kind: "pa.DataType") -> "pa.Array":
    """Returns headers as Spark's connector does: null, not empty, for records without headers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(headers.values) == 0:
        return pa.nulls(len(headers), kind)
    has_none = pc.equal(pc.list_value_length(headers), 0)
    structs = headers.flatten()
    offsets = pc.subtract(headers.offsets, headers.offsets[0])
    lists = pa.ListArray.from_arrays(offsets, structs, type=pa.list_(structs.type), mask=has_none)
    return lists.cast(kind)
