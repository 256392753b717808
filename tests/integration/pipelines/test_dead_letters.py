"""Parsing JSON, the reasons for invalid rows, and dead letters."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.pipelines import PipelineError, dead_letter_value, parse_json, parse_records

WHEN = datetime(2026, 3, 4, 5, 6, 7, 89000, tzinfo=UTC)
SOURCE = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


def source(spark: Any, values: list[bytes | None], key: bytes | None = b"k") -> Any:
    rows = [(key, value, "orders", 1, offset, WHEN) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, SOURCE)


def test_parses_good_rows_and_gives_bad_rows_a_reason(spark: Any) -> None:
    values = [
        b'{"id": "a", "n": 1, "in": {"x": 2}}',
        b'{"id": "b"}',
        b"not json",
        b"",
        None,
        b'{"id": "c", "n": "many"}',
        b"[1, 2]",
        b'"text"',
        b"\xff\xfe",
        b'{"n": 3}',
        b'{"id": "d\xff"}',
        b'{"id": "e", "n": 4',
        b"null",
        b'{"id": "f", "in": 7}',
    ]
    frame = source(spark, values)
    parsed = parse_json(frame, "id string, n bigint, in struct<x: int>", required=["id"])
    good = [(row.offset, row.data.asDict(recursive=True)) for row in parsed.good.orderBy("offset").collect()]
    assert good == [(0, {"id": "a", "n": 1, "in": {"x": 2}}), (1, {"id": "b", "n": None, "in": None})]
    assert parsed.bad.columns == [*frame.columns, "reason"]
    assert {row.offset: row.reason for row in parsed.bad.collect()} == {
        2: "not JSON",
        3: "not JSON",
        4: "no value",
        5: "JSON that does not fit the schema: n is not bigint",
        6: "not a JSON object",
        7: "not a JSON object",
        8: "not UTF-8 text",
        9: "no id",
        10: "not UTF-8 text",
        11: "not JSON",
        12: "not a JSON object",
        13: "JSON that does not fit the schema: in is not struct<x:int>",
    }


FIELDS: dict[str, tuple[str, list[str]]] = {
    "s": ("string", ['"x"', "1", "1.50", "null", '{"a": [1.0, NaN]}', '"\\ud800"', "true"]),
    "i": ("int", ["1", "-2147483648", "2147483648", "1.0", '"1"', "true"]),
    "b": ("boolean", ["true", "false", '"true"', "0"]),
    "x": ("double", ["1", "-0", "-0.0", "0.1", "1e400", "9007199254740993", "1E-7", "NaN", '"Infinity"', '"1.5"']),
    "y": ("float", ["0.1", "16777217", "16777217.000000001", "1e39", "1e-45", "3.4028235677973366e38", '"-INF"']),
    "d": ("decimal(10,2)", ["1.005", '"1,234.5"', "123456789", "99999999.999", "1e3", "true"]),
    "e": ("decimal(38,10)", ["1.00000000005", "12345678901234567890123456789", "0.1"]),
    "at": (
        "timestamp",
        [
            *('"2026-01-31T04:05:06Z"', '"2026-01-31 04:05:06.5+01:30"', '"2026"', '"2026-1-3 4:5"', "12", '"12"'),
            *('"2026-02-30"', '"2026-01-31T04:05:06.1234567 UTC"', '"0000-01-01"', '"2026-01-31T24:00:00"'),
        ],
    ),
    "day": ("date", ['"2026-01-31"', '"2026-2"', '"2026-01-31T1"', '"2026-02-30"', "5", '"+12026-01-01"']),
    "l": ("array<int>", ["[1, null]", "[]", '["x"]', "1"]),
    "m": ("map<string,double>", ['{"a": 1, "b": null, "\\u0041": 0.5}', "{}", '{"a": "x"}', "[]"]),
    "o": ("struct<p: int, q: string>", ['{"p": 1}', '{"q": 2, "r": 3}', '{"p": "x"}', "null", "[]"]),
}
"""Types and values of a field."""


def test_parse_records_is_the_same(spark: Any) -> None:
    """All types, as `parse_json` and `parse_records` read them."""
    texts = [f'{{"{name}": {text}}}' for name, (_, texts) in FIELDS.items() for text in texts]
    values = [*(text.encode() for text in texts), None, b"", b"{}", b"oops", b"[]", b'{"s": "\xff"}', b"{'i': 1} x"]
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in FIELDS.items())
    frame = source(spark, values)
    expected = parse_json(frame, schema)
    found = parse_records(frame.toArrow().combine_chunks().to_batches()[0], schema)
    reasons = {row.offset: row.reason for row in expected.bad.collect()}
    assert dict(zip(found.bad["offset"].to_pylist(), found.bad["reason"].to_pylist(), strict=True)) == reasons
    rows = expected.good.select("offset", "data.*").toArrow().sort_by("offset")
    assert found.records["offset"].to_pylist() == rows["offset"].to_pylist()
    for name in FIELDS:
        assert repr(_numbers(found.rows[name])) == repr(_numbers(rows[name].combine_chunks())), name
    compiled = parse_records(frame.toArrow().combine_chunks().to_batches()[0], schema.replace("e decimal(38,10), ", ""))
    for name in FIELDS.keys() - {"e"}:
        shared = compiled.rows.filter(pc.is_in(compiled.records["offset"], found.records["offset"]))
        assert repr(_numbers(shared[name])) == repr(_numbers(rows[name].combine_chunks())), name


def _numbers(column: pa.Array) -> list[Any]:
    """Returns the values; times as numbers, since Python does not know all years."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    values: list[Any] = column.to_pylist()
    return values


def test_every_row_is_good_or_bad(spark: Any) -> None:
    values = [f'{{"id": {"null" if number % 3 else number}}}'.encode() for number in range(50)]
    parsed = parse_json(source(spark, values), "id bigint", required=["id"], into="row")
    assert parsed.good.count() == 17
    assert parsed.bad.count() == 33
    assert parsed.good.columns[-1] == "row"


def test_nested_fields_may_be_required(spark: Any) -> None:
    values = [b'{"common": {"mid": "m"}}', b'{"common": {}}', b"{}"]
    parsed = parse_json(source(spark, values), "common struct<mid: string>", required=["common.mid"])
    assert [row.reason for row in parsed.bad.collect()] == ["no common.mid", "no common.mid"]


def test_rejects_an_existing_target_column(spark: Any) -> None:
    with pytest.raises(PipelineError, match="already has a column 'value'"):
        parse_json(source(spark, [b"{}"]), "id string", into="value")
    with pytest.raises(PipelineError, match="not a list of fields"):
        parse_json(source(spark, [b"{}"]), "int")


def dead_letters(spark: Any, values: list[bytes | None], key: bytes | None = b"k") -> list[dict[str, Any]]:
    from pyspark.sql import functions as sf

    rows = source(spark, values, key).select(dead_letter_value(sf.lit("why")).alias("value")).collect()
    return [json.loads(row.value) for row in rows]


def test_dead_letter_names_its_source_record(spark: Any) -> None:
    (letter,) = dead_letters(spark, ['{"a": "ü"'.encode()])
    assert letter == {
        "reason": "why",
        "topic": "orders",
        "partition": 1,
        "offset": 0,
        "timestamp": 1772600767089,
        "key": "k",
        "value": '{"a": "ü"',
    }


def test_encodes_non_utf8_bytes_as_base64(spark: Any) -> None:
    (letter,) = dead_letters(spark, [b"\x00\xff"], key=b"\xfe")
    assert (letter["encoding"], base64.b64decode(letter["value"])) == ("base64", b"\x00\xff")
    assert (letter["key_encoding"], base64.b64decode(letter["key"])) == ("base64", b"\xfe")


def test_omits_missing_fields(spark: Any) -> None:
    (letter,) = dead_letters(spark, [None], key=None)
    assert sorted(letter) == ["offset", "partition", "reason", "timestamp", "topic"]


def test_truncates_long_values(spark: Any) -> None:
    letters = dead_letters(spark, [b"x" * 1_000_000, b"\xff" * 500_000, b"\x01" * 500_000, b"y" * 100_000])
    assert [letter.get("value_bytes") for letter in letters] == [1_000_000, 500_000, 500_000, None]
    assert [len(letter["value"]) for letter in letters] == [100_000] * 4
    assert base64.b64decode(letters[1]["value"]) == b"\xff" * 75_000
    assert max(len(json.dumps(letter)) for letter in letters) < 1_000_000
