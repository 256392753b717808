"""Arrow flows write the same bytes as flows of data frames: JSON values, keys, dead letters."""

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.pipelines.arrow_records import output_records
from headrace.pipelines.outputs import dead_letter_records
from headrace.pipelines.outputs import records as spark_records
from headrace.pipelines.pipeline import DEAD_LETTERS, SOURCE_COLUMNS, Topic

UTC = dt.UTC
TEXTS = ['say "hi"', "back\\slash", "", None, "tab\tline\r\nbell\x07\x1f\x7f\b\f", "日本 é 😀 \u2028", "/slash", "{,}"]
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    0.1,
    123456.789,
    1e7,
    9999999.0,
    1e-3,
    9.99e-4,
    -1.5e300,
    2.5e-320,
    float("nan"),
    float("inf"),
]
TIMES = [
    dt.datetime(2026, 3, 4, 5, 6, 7, 89_999, UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    None,
    dt.datetime(2026, 1, 1, tzinfo=UTC),
]
STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
COLUMNS: dict[str, pa.Array] = {
    "text": pa.array(TEXTS),
    "large_text": pa.array(TEXTS, pa.large_string()),
    "tiny": pa.array([1, -128, None], pa.int8()),
    "long": pa.array([2**63 - 1, -(2**63), None]),
    "yes": pa.array([True, False, None]),
    "double": pa.array([*DOUBLES, None]),
    "money": pa.array([Decimal("1.10"), Decimal("-0.01"), None, Decimal("12345678901234.50")], pa.decimal128(20, 2)),
    "small_decimal": pa.array([Decimal("0.00000001"), Decimal(0), Decimal(3)], pa.decimal128(12, 8)),
    "time": pa.array(TIMES, pa.timestamp("us", "UTC")),
    "day": pa.array([dt.date(2026, 3, 4), dt.date(1955, 1, 31), None]),
    "bytes": pa.array([b"\xff\x00", b"", None, b"abc"]),
    "list": pa.array([[1, None, 2], [], None]),
    "texts": pa.array([["a", None, '"'], [], None]),
    "struct": pa.array([{"x": 1, "y": None}, None, {"x": None, "y": None}, {"x": 2, "y": "q"}], STRUCT),
    "structs": pa.array([[{"x": 1, "y": "a"}, None], None, []], pa.list_(STRUCT)),
    "lists": pa.array([[[1], [], None], None, []], pa.list_(pa.list_(pa.int64()))),
    "map": pa.array([[('k"', 1), ("n", None)], [], None], pa.map_(pa.string(), pa.int64())),
}


def spark_frame(spark: Any, table: pa.Table) -> Any:
    """Returns the rows as a data frame of one partition, so that they keep their order."""
    return spark.createDataFrame(table).coalesce(1)


def keys_and_values(frame: Any) -> list[tuple[bytes | None, bytes | None]]:
    return [tuple(None if part is None else bytes(part) for part in (row.key, row.value)) for row in frame.collect()]


def arrow_keys_and_values(batch: pa.RecordBatch) -> list[tuple[bytes | None, bytes | None]]:
    rows = batch.num_rows
    columns = {
        name: batch.column(name).cast(pa.binary()).to_pylist()
        for name in ("key", "value")
        if name in batch.schema.names
    }
    return list(zip(columns.get("key", [None] * rows), columns["value"], strict=True))


@pytest.mark.parametrize("name", COLUMNS)
def test_values_without_a_value_column_are_spark_json(spark: Any, name: str) -> None:
    table = pa.table({name: COLUMNS[name], "id": [f"r{number}" for number in range(len(COLUMNS[name]))]})
    expected = keys_and_values(spark_records("out", Topic("t", key="id"), spark_frame(spark, table)))
    assert arrow_keys_and_values(output_records("out", Topic("t", key="id"), table)) == expected
    sliced = output_records("out", Topic("t", key="id"), table.slice(1))
    assert arrow_keys_and_values(sliced) == expected[1:]


def test_several_columns_and_rows_without_any_value(spark: Any) -> None:
    table = pa.table({"a": [None, 1, None], "b": ["x", None, None], "key": ["k", None, "l"]})
    expected = keys_and_values(spark_records("out", Topic("t"), spark_frame(spark, table)))
    assert arrow_keys_and_values(output_records("out", Topic("t"), table)) == expected
    assert expected[2] == (b"l", b"{}")


@pytest.mark.parametrize(
    "name", ["text", "tiny", "long", "yes", "double", "money", "small_decimal", "time", "day", "list", "struct"]
)
def test_keys_and_values_of_other_types_are_text(spark: Any, name: str) -> None:
    table = pa.table({"key": COLUMNS[name], "value": COLUMNS[name]})
    expected = keys_and_values(spark_records("out", Topic("t"), spark_frame(spark, table)))
    assert arrow_keys_and_values(output_records("out", Topic("t"), table)) == expected


def test_topics_of_rows(spark: Any) -> None:
    table = pa.table({"topic": ["a", "b", "a"], "key": ["1", "2", "3"], "n": [1, 2, 3]})
    expected = spark_records("out", Topic(None), spark_frame(spark, table)).collect()
    batch = output_records("out", Topic(None), table)
    assert batch["topic"].to_pylist() == [row.topic for row in expected]
    assert arrow_keys_and_values(batch) == [(bytes(row.key), bytes(row.value)) for row in expected]


def hostile_bytes() -> list[bytes | None]:
    chance = random.Random(7)
    fixed: list[bytes | None] = [
        None,
        b"",
        b"plain",
        b"\xff\xfe",
        b"\xed\xa0\x80",  # a surrogate
        b"\xc0\x80",  # an overlong form
        b"\xf4\x90\x80\x80",  # beyond Unicode
        b"\xe2\x82",  # cut off
        '\x00\x01\x1f"\\\b\f\n\r\t\x7f\x80'.encode(),
        ("😀" * 30).encode(),
        ("😀" * 100_001).encode(),
        ("é" * 100_000).encode(),
        b"a" * 100_001,
        b"\x00" * 90_000,
        b"\xff" * 80_000,  # longer than the limit as base64
        b"\xff" * 74_999,
    ]
    return fixed + [chance.randbytes(chance.randrange(1, 12)) for _ in range(60)]


def test_dead_letters_are_the_same_bytes(spark: Any) -> None:
    contents = hostile_bytes()
    chance = random.Random(11)
    count = 3 * len(contents)
    times = [chance.choice([None, 0, -1, 1_772_600_767_089_999, -5_000_001]) for _ in range(count)]
    table = pa.table(
        {
            "reason": [chance.choice(['no "id"', "not JSON", "é😀", None]) for _ in range(count)],
            "key": pa.array([chance.choice(contents[:12] + contents[16:]) for _ in range(count)], pa.binary()),
            "value": pa.array(contents * 3, pa.binary()),
            "topic": ["in"] * count,
            "partition": pa.array(range(count), pa.int32()),
            "offset": pa.array([2**40 + number for number in range(count)], pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "extra": ["ignored"] * count,
        }
    )
    assert set(SOURCE_COLUMNS) < set(table.column_names)
    expected = keys_and_values(dead_letter_records(Topic("dead"), spark_frame(spark, table)))
    assert arrow_keys_and_values(output_records(DEAD_LETTERS, Topic("dead"), table)) == expected
