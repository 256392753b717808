"""The columns of the source, and those of them that a user asks for with `.schema(...)`.

Runs in the driver's planners (`source_schema`, `wanted_columns`) and in tasks (`RowsBuilder`, which makes of what was
fetched the Arrow record batch that Spark expects).

Invariant: a record batch has exactly the Arrow schema that Spark derives from the data frame's: it compares them.
"""

from collections.abc import Callable
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

__all__ = ["RowsBuilder", "source_schema", "wanted_columns"]

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
    """The columns that are read unless the user asks for others."""
    return StructType(
        [StructField(name, kind) for name, kind in _COLUMNS.items() if include_headers or name != HEADERS]
    )


def wanted_columns(schema: StructType) -> list[str]:
    """The source's columns that a data frame's schema asks for, in its order. Raises for others, and other types.

    The headers need no `includeHeaders` where they are asked for by name.
    """
    found: list[str] = []
    for field in schema.fields:
        name = _BY_LOWER_NAME.get(field.name.lower())
        if name is None:
            raise ConfigError(
                f"the schema has a column {field.name!r}, which topics do not: expected some of {', '.join(_COLUMNS)}"
            )
        if not _is_same(field.dataType, _COLUMNS[name]):
            raise ConfigError(
                f"the schema has column {field.name!r} as {field.dataType.simpleString()}: expected "
                f"{_COLUMNS[name].simpleString()}"
            )
        found.append(name)
    return found


def _is_same(one: DataType, other: DataType) -> bool:
    """Equal but for nullability, which is Spark's to say."""
    return one.simpleString().lower() == other.simpleString().lower()


class RowsBuilder:
    """Makes Arrow record batches of the wanted columns. One for each task."""

    def __init__(self, schema: StructType, tp: TopicPartition):
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._tp = tp
        self._constants: dict[str, pa.Array] = {}
        makers: dict[str, Callable[[RangeColumns, pa.DataType], Any]] = {
            "key": lambda columns, _: columns.keys,
            "value": lambda columns, _: columns.values,
            "topic": lambda columns, kind: self._repeated("topic", tp.topic, kind, len(columns)),
            "partition": lambda columns, kind: self._repeated("partition", tp.partition, kind, len(columns)),
            "offset": lambda columns, _: columns.offsets,
            "timestamp": lambda columns, _: columns.timestamps,
            "timestampType": lambda columns, _: columns.timestamp_types,
            HEADERS: lambda columns, kind: _headers(columns.headers, kind),
        }
        self._makers = [makers[name] for name in wanted_columns(schema)]
        self._types = [field.type for field in self._schema]

    def build(self, columns: "RangeColumns") -> "pa.RecordBatch":
        import pyarrow as pa

        arrays = [make(columns, kind) for make, kind in zip(self._makers, self._types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _repeated(self, name: str, value: object, kind: "pa.DataType", rows: int) -> "pa.Array":
        import pyarrow as pa

        known = self._constants.get(name)
        if known is None or len(known) < rows:
            known = self._constants[name] = pa.repeat(pa.scalar(value, kind), rows + rows // 4)
        return known.slice(0, rows)


def _headers(headers: "pa.ListArray", kind: "pa.DataType") -> "pa.Array":
    """Headers as Spark's connector has them: null, not empty, where a record has none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(headers.values) == 0:
        return pa.nulls(len(headers), kind)
    has_none = pc.equal(pc.list_value_length(headers), 0)
    structs = headers.flatten()
    offsets = pc.subtract(headers.offsets, headers.offsets[0])
    made = pa.ListArray.from_arrays(offsets, structs, type=pa.list_(structs.type), mask=has_none)
    return made.cast(kind)
