"""Rows as `from_json` reads them. tests/integration/shop compares them with Spark."""

from decimal import Decimal
from typing import Any

import pytest

from headrace.pipelines.json_rows import ObjectReader, has_value, write_json, write_plain
from headrace.pipelines.sql_schema import parse_sql_schema

SCHEMA = (
    "i BIGINT, b TINYINT, s STRING, d DECIMAL(6,2), at TIMESTAMP, day DATE, x DOUBLE, y FLOAT, ok BOOLEAN, "
    "l ARRAY<STRUCT<n: INT>>, m MAP<STRING,INT>, o STRUCT<p: INT, q: STRING>"
)
READER = ObjectReader(parse_sql_schema(SCHEMA), database_times=True)


def read(text: str) -> dict[str, Any]:
    row, fits = READER.read(text)
    assert fits
    assert row is not None
    return row


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('{"i": -0, "b": 200, "s": 1.50}', {"i": 0, "b": -56, "s": "1.5"}),
        ("{'s': {'a': [NaN]}}", {"s": '{"a":["NaN"]}'}),
        ('{"s": "x", "s": "y", "other": {"s": "z"}}', {"s": "y"}),
        ('{"s": "\\ud800"}', {"s": "?"}),
        ('{"d": 0.005}', {"d": Decimal("0.01")}),
        ('{"d": "1,234.5"}', {"d": Decimal("1234.50")}),
        ('{"d": -0.001}', {"d": Decimal("0.00")}),
        ('{"at": "2026-01-01 00:00:00.25"}', {"at": 1_767_225_600_250_000}),
        ('{"at": 5}', {"at": 5_000_000}),
        ('{"day": "2026-1"}', {"day": 20454}),
        ('{"day": "7"}', {"day": 7}),
        ('{"x": "NaN", "y": 0.1, "ok": false}', {"x": pytest.approx(float("nan"), nan_ok=True), "ok": False}),
        ('{"l": [{"n": 1}, null], "m": {"a": 1, "b": null}, "o": {"p": 5}} text', {"m": [("a", 1), ("b", None)]}),
    ],
)
def test_reads(text: str, row: dict[str, Any]) -> None:
    found = read(text)
    assert {name: found[name] for name in row} == row


@pytest.mark.parametrize(
    "text",
    [
        *('{"i": 1.0}', '{"i": "1"}', '{"i": 9223372036854775808}', '{"b": 256}', '{"d": 10000}', '{"d": ""}'),
        *('{"d": " 1"}', '{"at": "2026-01-01"}', '{"at": ""}', '{"day": "2026-13-01"}', '{"x": "INF"}', '{"ok": 1}'),
        *('{"l": {}}', '{"l": [1]}', '{"m": []}', '{"o": 7}', '{"o": {"p": "x"}}', "[]", "null", "", "{"),
    ],
)
def test_what_does_not_fit(text: str) -> None:
    assert not READER.read(text)[1]


@pytest.mark.parametrize(
    ("digits", "number"),
    [
        ("16777217", 16777216.0),
        ("16777217.000000001", 16777218.0),
        ("1.00000017881393432617187499999", 1.0000001192092896),
        ("1.00000017881393432617187500001", 1.000000238418579),
        ("3.40282356779733661637539395458142568447e38", 3.4028234663852886e38),
        ("3.40282356779733661637539395458142568448e38", float("inf")),
        ("7.006492321624085354618e-46", 0.0),
        ("7.006492321624085354619e-46", 1.401298464324817e-45),
        ("1e-45", 1.401298464324817e-45),
    ],
)
def test_floats_are_rounded_once(digits: str, number: float) -> None:
    assert read(f'{{"y": {digits}}}')["y"] == number


def test_times_of_iso_8601() -> None:
    row, fits = ObjectReader(parse_sql_schema("at TIMESTAMP")).read('{"at": "1970-01-01T01:00:01+01:00"}')
    assert (row, fits) == ({"at": 1_000_000}, True)


def test_fields_around_a_mismatch_are_read() -> None:
    row, fits = READER.read('{"i": 1, "l": [{"n": "x"}, {"n": 2}], "o": {"p": "x", "q": "y"}, "s": "z"}')
    assert (row, fits) == ({"i": 1, "l": [{}, {"n": 2}], "o": {"q": "y"}, "s": "z"}, False)
    assert READER.read('{"l": [7, {"i": 5}], "s": "z"}') == ({"s": "z"}, False)


def test_paths() -> None:
    text = """{"a": {"b": 1, 'c': null}, "d": [], "e": "\t", "f": {"b": {}}}"""
    found = [
        path for path in ("a", "a.b", "a.c", "a.b.c", "d", "d.x", "e", "f.b", "x") if has_value(text, *path.split("."))
    ]
    assert found == ["a", "a.b", "d", "e", "f.b"]
    assert not has_value('{"a": 1,}', "a")
    assert not has_value('{"a": "\\ud800"}', "a")
    assert has_value('{"a": {"c": 1}, "a": {"b": 1}}', "a", "b")


def test_writes_rows() -> None:
    schema = parse_sql_schema(SCHEMA)
    row = read(
        '{"i": 1, "s": "a\\"\\u0001", "d": 1.5, "at": -1, "day": "2026-01-02", "x": 1e10, "y": 0.1, "ok": true, '
        '"l": [{"n": 1}, null, {}], "m": {"a": null}, "o": {"q": "x"}}'
    )
    assert write_json(row, schema).decode() == (
        '{"i":1,"s":"a\\"\\u0001","d":1.50,"at":"1969-12-31T23:59:59.000Z","day":"2026-01-02","x":1.0E10,"y":0.1,"ok":true,'
        '"l":[{"n":1},null,{}],"m":{"a":null},"o":{"q":"x"}}'
    )
    assert b'"at":-1000000' in write_plain(row, schema)


def test_small_decimals_have_an_exponent() -> None:
    schema = parse_sql_schema("n DECIMAL(20,8)")
    row, _ = ObjectReader(schema).read('{"n": 0.00000001}')
    assert write_json(row or {}, schema) == b'{"n":1E-8}'
