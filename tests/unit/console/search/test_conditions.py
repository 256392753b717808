"""Conditions of requests: what is refused, and why."""

import pytest

from headrace.console.search.conditions import FilterError, JsonPath, parse_conditions


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("text", "A filter is a list"),
        ([{}] * 21, "at most 20 conditions"),
        ([1], "Condition 1: expected an object"),
        ([{"op": "exists"}, {"fild": "key"}], "Condition 2: unknown member 'fild'"),
        ([{"field": "body"}], "field 'body': expected key"),
        ([{"op": "like"}], "op 'like': expected contains"),
        ([{"operand": 5}], "operand is not text"),
        ([{"negate": "yes"}], "negate is not true or false"),
        ([{"op": "exists", "operand": "x"}], "exists takes no operand"),
        ([{"path": "$.a"}], "a path needs field key or value"),
        ([{"field": "key", "header": "h"}], "`header` needs field header"),
        ([{"op": "regex", "operand": "("}], r"regular expression '\('"),
        ([{"op": "regex", "operand": r"(a)\1"}], "regular expression"),
        ([{"operand": "\ud800"}], "surrogate"),
        ([{"operand": "a\0"}], "NUL"),
        ([{"operand": "x" * 10_001}], "more than 10000 characters"),
        ([{"field": "value", "path": "$"}], "is empty"),
        ([{"field": "value", "path": "$.a["}], r"at '\['"),
    ],
)
def test_wrong_conditions(given: object, problem: str) -> None:
    with pytest.raises(FilterError, match=problem):
        parse_conditions(given)


def test_no_filter() -> None:
    assert parse_conditions(None) == ()


def test_paths() -> None:
    path = JsonPath.parse("$['a.b'][0].c")
    assert path.select({"a.b": [{"c": 1}, {"c": 2}]}) == [1]
    assert path.members is None
    assert JsonPath.parse("a.b").members == ("a", "b")
    assert JsonPath.parse("$.a[*]").select({"a": {"x": 1, "y": 2}}) == [1, 2]
    assert JsonPath.parse("$.a[5]").select({"a": [1]}) == []
