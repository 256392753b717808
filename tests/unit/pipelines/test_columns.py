"""Arrow columns from Python values and from fields of JSON values."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.columns import JsonFields, binary_column, integer_column, integers_in, is_true, text_column


def test_columns_of_python_values() -> None:
    binary = binary_column(["ä", b"\xff", None, ""])
    binary.validate(full=True)
    assert binary.to_pylist() == ["ä".encode(), b"\xff", None, b""]
    assert text_column([None, "x"]).to_pylist() == [None, "x"]
    assert integer_column([1, -5]).to_pylist() == [1, -5]
    assert binary_column([]).to_pylist() == []


def test_integers_in_text() -> None:
    texts = text_column(["7", "-3", "1.5", "x", None, "", "9" * 25])
    assert integers_in(texts, -1).to_pylist() == [7, -3, -1, -1, -1, -1, -1]


def test_null_is_not_true() -> None:
    assert is_true(pa.array([True, False, None])).to_pylist() == [True, False, False]


def fields(values: list[bytes | str | None], *paths: str) -> list[list[str | None]]:
    found = JsonFields(*(path.split(".") for path in paths)).of(binary_column(values))
    for column in found:
        column.validate(full=True)
    return [column.to_pylist() for column in found]


def test_finds_fields() -> None:
    value = json.dumps({"a": "x", "b": {"c": 7, "d": [1, {"a": "no"}]}, "e": None, "f": True, "g": {"a": "no"}})
    assert fields([value], "a", "b.c", "b.d", "e", "f", "g.b", "h") == [
        ["x"],
        ["7"],
        ['[1, {"a": "no"}]'],
        [None],
        ["true"],
        [None],
        [None],
    ]


def test_decodes_text() -> None:
    texts = ['q"\\/', "\n", "ä", "€ \U0001f600", ""]
    values = [json.dumps({"a": text}, ensure_ascii=ascii_) for text in texts for ascii_ in (True, False)]
    assert fields(values, "a") == [[text for text in texts for _ in range(2)]]


def test_the_last_of_several_fields_counts() -> None:
    assert fields(['{"a":1,"a":"2"}', '{"a":1,"a":null}'], "a") == [["2", None]]


def test_accepts_whitespace() -> None:
    assert fields([' \n{ "x" : [ ] , "a"\t: 1 }\r\n'], "a") == [["1"]]


@pytest.mark.parametrize(
    "value",
    [None, b"", b"null", b"[1]", b'"a"', b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b'{"a":1,}', b'{"a":"x',
     b'{"a":1}x', b'{"a" 1}', b"{a:1}", b'{"b":{"a":1]}', b'{"b":[}', b'{"a":"\\', b'{"a":}',
     b'{"b":' + b"[" * 600 + b"]" * 600 + b"}"],
)  # fmt: skip
def test_other_values_have_no_fields(value: bytes | None) -> None:
    assert fields(['{"a":1}', value, '{"a":2}'], "a") == [["1", None, "2"]]


SCALARS = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_finds_what_json_finds(value: object) -> None:
    text = json.dumps({"before": value, "a": {"b": value, "c": "x"}, "after": value})
    (found,) = fields([text], "a.b")[0]
    if value is None or isinstance(value, str):
        assert found == value or (found is None and not _is_unicode(value))
    else:
        assert found is not None
        assert json.loads(found) == value


def _is_unicode(text: object) -> bool:
    try:
        str(text).encode()
    except UnicodeEncodeError:
        return False
    return True


@given(st.binary(max_size=40))
def test_any_bytes_are_safe(data: bytes) -> None:
    fields([data, b'{"a":' + data], "a")


def test_reads_slices() -> None:
    column = binary_column([f'{{"a":{number}}}' for number in range(10)]).slice(3, 4)
    assert JsonFields(["a"]).of(column)[0].to_pylist() == ["3", "4", "5", "6"]
