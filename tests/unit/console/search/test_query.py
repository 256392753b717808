"""Queries as JSON, and the short form of a condition on a path."""

import json
from typing import Any

import pytest

from headrace.console.search.conditions import FilterError
from headrace.console.search.query import RecordQuery, path_condition


def test_json_form() -> None:
    query = RecordQuery("t", (1, 2), "time", time_ms=5, conditions=({"op": "exists"},), offsets=((0, 3),))
    assert RecordQuery.from_json(json.loads(json.dumps(query.to_json()))) == query


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({"start": "end"}, "from=end"), ({"start": "time"}, "needs time_ms"), ({"offset": -1}, "offset=-1")],
)
def test_wrong_queries(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(FilterError, match=problem):
        RecordQuery("t", **fields)


@pytest.mark.parametrize(
    ("text", "path", "op", "operand", "negate"),
    [
        ("$.a", "$.a", "exists", None, None),
        ("$.a = x", "$.a", "equals", "x", False),
        ("$.a!='x y'", "$.a", "equals", "x y", True),
        ("$.a<=5", "$.a", "le", "5", False),
        ("$['a=b']>\"5\"", "$['a=b']", "gt", "5", False),
        ("$.a=b=c", "$.a", "equals", "b=c", False),
    ],
)
def test_path_condition(text: str, path: str, op: str, operand: str | None, negate: bool | None) -> None:
    condition = path_condition(text)
    assert condition["path"] == path
    assert condition["op"] == op
    assert condition.get("operand") == operand
    assert condition.get("negate") == negate


def test_half_an_operator() -> None:
    with pytest.raises(FilterError, match="expected =, !="):
        path_condition("$.a!x")
