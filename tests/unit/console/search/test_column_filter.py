"""The filter on columns selects the same rows as the filter on single records."""

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headrace.console.decoders.registry import DecoderRegistry
from headrace.console.search.column_filter import ColumnFilter
from headrace.console.search.conditions import parse_conditions
from headrace.console.search.row_filter import RowFilter
from headrace.records.arrow import HEADERS_TYPE

_OPS = ("contains", "equals", "starts_with", "regex", "exists", "missing", "lt", "le", "gt", "ge")
_TEXTS = ("abc", "ABC", "5", "5.0", "b", "", ".b", "ß", "�", "-1000", "5e0", '"', "a[b", "tru", "k", "1000.0")
_PATTERNS = ("abc", "^a", "c$", "[0-9]", "ß", "�", "a.c", "(?i)ABC")
_PATHS = ("$.a", "a", "$.a.b", "$.a[0]", "$.a[*]", "$.a[2].c", "$['user.name']", "$.a[-1].c", "$[*]")


def _data(random: Random) -> bytes | None:
    kind = random.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return bytes(random.randrange(256) for _ in range(random.randrange(8)))
    if kind == 2:
        return random.choice(
            [b"abc", b"ABC", b"5", b"5.0", b"-1e3", b"", b"abc\nd", "Straße".encode(), b"\xe2\x84\xaa"]
        )
    value: dict[str, Any] = {
        "a": random.choice([None, 1, 5, 5.0, "5", "abc", 'x"y', {"b": 2}, {"b": "abc"}, [1, "abc", {"c": "abc"}], True])
    }
    if random.random() < 0.3:
        value["user.name"] = "abc"
    text = json.dumps(value, ensure_ascii=random.random() < 0.5, separators=random.choice([None, (",", ":")]))
    return (text[:-1] if random.random() < 0.1 else text).encode()


def _condition(random: Random) -> dict[str, Any]:
    field, op = random.choice(["key", "value", "any", "header"]), random.choice(_OPS)
    condition: dict[str, Any] = {
        "field": field,
        "op": op,
        "negate": random.random() < 0.2,
        "ignore_case": random.random() < 0.3,
    }
    if op not in ("exists", "missing"):
        condition["operand"] = random.choice(_PATTERNS if op == "regex" else _TEXTS)
    if field in ("key", "value") and random.random() < 0.5:
        condition["path"] = random.choice(_PATHS)
    if field == "header" and random.random() < 0.5:
        condition["header"] = random.choice("hkz")
    return condition


@pytest.mark.parametrize("seed", range(4))
def test_same_as_one_row_at_a_time(seed: int) -> None:
    random = Random(seed)
    rows = [
        (
            _data(random),
            _data(random),
            [(random.choice("hkx"), _data(random)) for _ in range(random.choice([0, 0, 1, 2]))],
        )
        for _ in range(120)
    ]
    # Slices, whose buffers begin before the first row.
    keys = pa.array([row[0] for row in rows], pa.binary())[3:]
    values = pa.array([row[1] for row in rows], pa.binary())[3:]
    headers = pa.array([[{"key": name, "value": data} for name, data in row[2]] for row in rows], HEADERS_TYPE)[3:]
    rows = rows[3:]
    decoders = DecoderRegistry()
    for _ in range(300):
        given = [_condition(random) for _ in range(random.choice([1, 1, 2, 3]))]
        conditions = parse_conditions(given)
        key_decoder = decoders.get(random.choice(["auto", "json", "hex"]))
        value_decoder = decoders.get(random.choice(["auto", "text", "hex", "json", "msgpack"]))
        selected = ColumnFilter(conditions, key_decoder, value_decoder).select(keys, values, headers)
        row_filter = RowFilter(conditions, key_decoder, value_decoder)
        expected = [number for number, row in enumerate(rows) if row_filter.matches(*row)]
        found = list(range(len(rows))) if selected is None else selected.to_pylist()
        assert found == expected, (given, key_decoder.name, value_decoder.name)


def test_no_conditions_select_all() -> None:
    decoder = DecoderRegistry().get("auto")
    column = pa.array([b"a"], pa.binary())
    assert ColumnFilter((), decoder, decoder).select(column, column, pa.array([[]], HEADERS_TYPE)) is None
    assert (
        ColumnFilter(parse_conditions([{"field": "key", "op": "exists"}]), decoder, decoder)
        .select(column[:0], column[:0], pa.array([], HEADERS_TYPE))
        .to_pylist()
        == []
    )
