"""JSON objects of Arrow rows. `tests/integration/pipelines` compares them with Spark's."""

import json
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipelines.json_output import double_text, rows_to_json

LEAVES = st.none() | st.text(st.sampled_from('ab"\\/{},\x00\x1f\x7f\b\f\n\r\té日😀\u2028'), max_size=8)


def without_nulls(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if value is not None}


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "text": LEAVES,
                "number": st.none() | st.integers(-(2**63), 2**63 - 1),
                "yes": st.none() | st.booleans(),
                "double": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "texts": st.none() | st.lists(LEAVES, max_size=3),
                'a "name"': LEAVES,
            }
        ),
        max_size=6,
    )
)
def test_any_json_parser_reads_the_rows(rows: list[dict[str, object]]) -> None:
    schema = pa.schema(
        [
            ("text", pa.string()),
            ("number", pa.int64()),
            ("yes", pa.bool_()),
            ("double", pa.float64()),
            ("texts", pa.list_(pa.string())),
            ('a "name"', pa.string()),
        ]
    )
    table = pa.Table.from_pylist(rows, schema)
    expected = [without_nulls(row) for row in rows]
    assert [json.loads(text) for text in rows_to_json(table).to_pylist()] == expected
    assert [json.loads(text) for text in rows_to_json(table.slice(1)).to_pylist()] == expected[1:]


def test_chunked_dictionary_and_view_columns() -> None:
    table = pa.table(
        {
            "a": pa.chunked_array([["x"], ["y", None]]),
            "b": pa.array(["p", "q", "p"]).dictionary_encode(),
            "c": pa.array(["v", None, "w"], pa.string_view()),
            "n": pa.nulls(3),
        }
    )
    assert rows_to_json(table).to_pylist() == ['{"a":"x","b":"p","c":"v"}', '{"a":"y","b":"q"}', '{"b":"p","c":"w"}']


def test_rows_without_columns() -> None:
    assert rows_to_json(pa.table({"a": [1, 2]}).select([])).to_pylist() == ["{}", "{}"]


def test_unknown_type() -> None:
    with pytest.raises(TypeError, match="values of type duration"):
        rows_to_json(pa.table({"a": pa.array([1], pa.duration("s"))}))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-12.5, "-12.5"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (1.25e-10, "1.25E-10"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_as_java_writes_them(value: float, text: str) -> None:
    assert double_text(value) == text


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_keep_their_value(value: float) -> None:
    assert struct.pack("d", float(double_text(value))) == struct.pack("d", value)
