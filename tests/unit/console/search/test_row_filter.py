"""Conditions on single records."""

from typing import Any

import pytest

from headrace.console.decoders.registry import DecoderRegistry
from headrace.console.search.conditions import parse_conditions
from headrace.console.search.row_filter import RowFilter

_VALUE = b'{"id": 17, "user": {"name": "Ann"}, "items": [{"sku": "a-1"}, {"sku": "b-2"}], "none": null}'


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"field": "value", "path": "$.id", "op": "equals", "operand": "17.0"}, True),
        ({"field": "value", "path": "$.id", "op": "gt", "operand": "9"}, True),
        ({"field": "value", "path": "$.user.name", "op": "equals", "operand": "ann", "ignore_case": True}, True),
        ({"field": "value", "path": "$.user.name", "op": "equals", "operand": "ann"}, False),
        ({"field": "value", "path": "$.user", "op": "contains", "operand": '"name": "A'}, True),
        ({"field": "value", "path": "$.items[*].sku", "op": "equals", "operand": "b-2"}, True),
        ({"field": "value", "path": "$.items[0].sku", "op": "equals", "operand": "b-2"}, False),
        ({"field": "value", "path": "$.items[-1].sku", "op": "starts_with", "operand": "b"}, True),
        ({"field": "value", "path": "$.none", "op": "missing"}, True),
        ({"field": "value", "path": "$.none", "op": "equals", "operand": "x", "negate": True}, True),
        ({"field": "key", "op": "missing"}, True),
        ({"field": "any", "op": "regex", "operand": "A[n]{2}"}, True),
        ({"field": "header", "header": "h", "op": "equals", "operand": "v"}, True),
        ({"field": "header", "header": "other", "op": "exists"}, False),
        ({"field": "header", "op": "contains", "operand": "v"}, True),
        ({"op": "contains", "operand": "Ann"}, True),
        ({"field": "value", "op": "lt", "operand": "~"}, True),
    ],
)
def test_conditions(condition: dict[str, Any], expected: bool) -> None:
    decoder = DecoderRegistry().get("auto")
    assert RowFilter(parse_conditions([condition]), decoder, decoder).matches(None, _VALUE, [("h", b"v")]) is expected


def test_decoded_text_is_compared() -> None:
    registry = DecoderRegistry()
    row_filter = RowFilter(
        parse_conditions([{"field": "key", "op": "ge", "operand": "300"}]), registry.get("int32"), registry.get("auto")
    )
    assert row_filter.matches(b"\0\0\1\x2c", None, ())
    assert not row_filter.matches(b"\0\0\1\x2b", None, ())
    assert not row_filter.matches(b"short", None, ())
