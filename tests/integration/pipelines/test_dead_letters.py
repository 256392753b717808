"""Parsing JSON, the reasons for invalid rows, and dead letters."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.pipelines import PipelineError, dead_letter_value, parse_json

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
