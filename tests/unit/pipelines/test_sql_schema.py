"""SQL schemas without Spark."""

import pyarrow as pa
import pytest

from headrace.pipelines.sql_schema import SqlSchemaError, parse_sql_schema, sql_name


def test_types() -> None:
    schema = parse_sql_schema(
        "a BIGINT, b int NOT NULL COMMENT 'text', `c d` : STRING, e DECIMAL(16, 2), f decimal, g TIMESTAMP, h DATE, "
        "i ARRAY<STRUCT<x: INT, y DOUBLE>>, j MAP<STRING, BOOLEAN>, k STRUCT<>, `l``m` FLOAT, n SMALLINT, o TINYINT"
    )
    assert schema.names == ["a", "b", "c d", "e", "f", "g", "h", "i", "j", "k", "l`m", "n", "o"]
    assert schema.field("e").type == pa.decimal128(16, 2)
    assert schema.field("g").type == pa.timestamp("us", "UTC")
    assert [sql_name(kind) for kind in schema.types] == [
        "bigint",
        "int",
        "string",
        "decimal(16,2)",
        "decimal(10,0)",
        "timestamp",
        "date",
        "array<struct<x:int,y:double>>",
        "map<string,boolean>",
        "struct<>",
        "float",
        "smallint",
        "tinyint",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id of what", "type OF is not supported"),
        ("BIGINT", "expected a type at the end"),
        ("a BIGINT b INT", "unexpected 'b'"),
        ("a BIGINT,", "expected the name of a column"),
        ("a BIGINT, A INT", "'a' occurs twice"),
        ("a DECIMAL(39,2)", "at most 38 digits"),
        ("a DECIMAL(2,3)", "at most 38 digits"),
        ("a DECIMAL(x)", "expected a number"),
        ("a ARRAY<INT", "expected '>'"),
        ("a MAP<INT,INT>", "keys of type STRING"),
        ("a BINARY", "type BINARY is not supported"),
        ("a INT COMMENT b", "expected text after COMMENT"),
        ("a INT; b INT", "unexpected text"),
        ("", "expected the name of a column"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(SqlSchemaError, match=message):
        parse_sql_schema(text)
