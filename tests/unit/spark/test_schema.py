"""Columns of the source, and the Arrow record batches that Spark expects."""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from headrace.client.consumer.range_client import RangeColumns
from headrace.common.errors import ConfigError
from headrace.common.types import TopicPartition
from headrace.spark.schema import RowsBuilder, selected_columns, source_schema

TP = TopicPartition("orders", 3)
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


def columns(rows: int, headers: list[list[dict[str, object]]] | None = None) -> RangeColumns:
    numbers = list(range(rows))
    return RangeColumns(
        pa.array([None] * rows, pa.binary()),
        pa.array([b"%d" % number for number in numbers], pa.binary()),
        pa.array(headers if headers is not None else [[] for _ in numbers], pa.list_(HEADER)),
        pa.array(numbers, pa.int64()),
        pa.array(numbers, pa.timestamp("us", tz="UTC")),
        pa.array([0] * rows, pa.int32()),
    )


@pytest.mark.parametrize("include_headers", [False, True])
def test_batches_have_the_schema_that_spark_expects(include_headers: bool) -> None:
    schema = source_schema(include_headers)
    batch = RowsBuilder(schema, TP).build(columns(3))
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    batch.validate(full=True)
    assert batch.column("topic").to_pylist() == ["orders"] * 3
    assert batch.column("partition").to_pylist() == [3, 3, 3]
    assert batch.column("offset").to_pylist() == [0, 1, 2]
    assert batch.num_columns == (8 if include_headers else 7)


def test_builder_handles_batches_of_any_length() -> None:
    builder = RowsBuilder(source_schema(False), TP)
    for rows in (5, 2, 100, 1, 0, 101):
        batch = builder.build(columns(rows))
        batch.validate(full=True)
        assert batch.column("topic").to_pylist() == ["orders"] * rows


def test_records_without_headers_have_null_headers() -> None:
    given: list[list[dict[str, object]]] = [[], [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], []]
    builder = RowsBuilder(source_schema(True), TP)
    expected = [None, [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None]
    batch = builder.build(columns(3, given))
    batch.validate(full=True)
    assert batch.column("headers").to_pylist() == expected
    part = RangeColumns(*(each.slice(1, 2) for each in columns(3, given)))
    assert builder.build(part).column("headers").to_pylist() == expected[1:]
    assert builder.build(columns(2)).column("headers").to_pylist() == [None, None]


def test_columns_have_the_order_of_the_schema() -> None:
    schema = StructType([StructField("OFFSET", LongType()), StructField("value", BinaryType())])
    assert selected_columns(schema) == ["offset", "value"]
    batch = RowsBuilder(schema, TP).build(columns(2))
    assert batch.schema.names == ["OFFSET", "value"]
    assert batch.column("value").to_pylist() == [b"0", b"1"]


def test_rejects_unknown_columns_and_types() -> None:
    with pytest.raises(ConfigError, match="unknown column 'colour': expected some of key, value, topic"):
        selected_columns(StructType([StructField("colour", StringType())]))
    with pytest.raises(ConfigError, match="column 'key' of the schema has type timestamp: expected binary"):
        selected_columns(StructType([StructField("key", TimestampType())]))
