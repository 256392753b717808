"""The columns of the source."""

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["COLUMNS", "HEADERS_TYPE", "source_schema"]

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)


def source_schema(options: Mapping[str, str]) -> StructType:
    """The columns that are read: with `includeHeaders` the headers too."""
    with_headers = str(options.get("includeheaders", "false")).strip().lower() == "true"
    return StructType([*COLUMNS.fields, StructField("headers", HEADERS_TYPE)]) if with_headers else COLUMNS
