"""The data that send_arrow accepts: real data frames of Polars, pandas and DuckDB, and their column types."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.errors import IllegalArgumentError
from headrace.client.producer.arrow_input import read_table
from headrace.records import RecordBatch, decode_rows
from headrace.records.arrow import HEADERS_TYPE, encode_arrow

duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: run make")
pd = pytest.importorskip("pandas", reason="pandas is not installed: run make")
pl = pytest.importorskip("polars", reason="Polars is not installed: run make")

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def sent(data: Any) -> list[tuple[Any, ...]]:
    """Returns key, value, headers and timestamp of each row, as a consumer would read them."""
    batches = encode_arrow(read_table(data), timestamp=5)
    rows = [row for encoded in batches for row in decode_rows(RecordBatch(bytes(encoded)).records())]
    return [(row.key, row.value, [tuple(header) for header in row.headers], row.timestamp) for row in rows]


def test_polars() -> None:
    frame = pl.DataFrame(
        {
            "key": pl.Series(["a", "b", "a"], dtype=pl.Categorical),
            "value": ["short", None, "a text that is longer than twelve bytes"],
            "headers": [[{"key": "h", "value": b"1"}], [], None],
            "timestamp": [NOON, NOON, None],
            "other": [1.5, 2.5, 3.5],
        }
    )
    assert sent(frame) == [
        (b"a", b"short", [("h", b"1")], NOON_MS),
        (b"b", None, [], NOON_MS),
        (b"a", b"a text that is longer than twelve bytes", [], 5),
    ]
    assert sent(pl.DataFrame({"value": [b"x", b"\x00"]})) == [(None, b"x", [], 5), (None, b"\x00", [], 5)]
    assert [row[1] for row in sent(frame.filter(pl.col("other") > 2).to_struct("rows"))] == [
        None,
        frame["value"][2].encode(),
    ]


def test_polars_in_several_chunks() -> None:
    frame = pl.concat([pl.DataFrame({"value": [f"value {number}"]}) for number in range(5)], rechunk=False)
    assert frame.n_chunks() == 5
    assert [row[1] for row in sent(frame)] == [b"value %d" % number for number in range(5)]


def test_pandas() -> None:
    frame = pd.DataFrame(
        {"key": pd.Categorical(["a", "b"]), "value": ["x", None], "timestamp": [NOON, NOON], "n": [1, 2]}, index=[7, 8]
    )
    assert sent(frame) == [(b"a", b"x", [], NOON_MS), (b"b", None, [], NOON_MS)]
    assert sent(pd.DataFrame({"value": [b"x", b"y"]})) == [(None, b"x", [], 5), (None, b"y", [], 5)]


def test_duckdb() -> None:
    relation = duckdb.sql(
        "SELECT 'k' || n AS key, to_json({n: n}) AS value, TIMESTAMPTZ '2026-11-18 12:00:00+00' AS timestamp "
        "FROM range(3) AS numbers(n)"
    )
    assert sent(relation) == [(b"k%d" % n, b'{"n":%d}' % n, [], NOON_MS) for n in range(3)]
    assert sent(duckdb.sql("SELECT '\\x00a'::BLOB AS value")) == [(None, b"\x00a", [], 5)]


class Exporter:
    """Exports one record batch, without the interface for streams."""

    def __init__(self, batch: pa.RecordBatch):
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object | None = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


def test_other_exporters() -> None:
    batch = pa.record_batch({"value": ["x"]})
    assert sent(Exporter(batch)) == sent(pa.table(batch).to_reader()) == [(None, b"x", [], 5)]


_BINARY_TYPES = [
    *(pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()),
    *(pa.dictionary(pa.int8(), kind) for kind in (pa.string(), pa.large_binary(), pa.string_view(), pa.binary_view())),
]


@pytest.mark.parametrize("kind", _BINARY_TYPES, ids=str)
@pytest.mark.parametrize("as_table", [True, False], ids=["table", "batch"])
def test_types_of_keys_and_values(kind: pa.DataType, as_table: bool) -> None:
    texts = ["a", None, "a text that is longer than twelve bytes", "a"]
    if pa.types.is_dictionary(kind):
        values = pa.array(["a", "a text that is longer than twelve bytes"]).cast(kind.value_type)
        column = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.int8()), values)
    else:
        column = pa.array(texts).cast(kind)
    data: Any = pa.record_batch({"key": column, "value": column})
    if as_table:
        data = pa.Table.from_batches([data.slice(0, 1), data.slice(1)])
    expected = [None if text is None else text.encode() for text in texts]
    assert [row[:2] for row in sent(data)] == [(text, text) for text in expected]
    assert [row[1] for row in sent(data.slice(2))] == expected[2:]


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_list(pa.struct({"key": pa.large_string(), "value": pa.large_binary()})),
        pa.list_(pa.struct({"value": pa.binary(), "key": pa.string()})),
    ],
    ids=str,
)
def test_types_of_headers(kind: pa.DataType) -> None:
    rows = [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None]
    data = pa.record_batch({"value": pa.array(["a", "b"]), "headers": pa.array(rows, HEADERS_TYPE).cast(kind)})
    assert [row[2] for row in sent(data)] == [[("h", b"1"), ("h", None)], []]


def test_plain_tables_are_not_copied() -> None:
    table = pa.table({"key": ["a"], "value": [b"x"]})
    assert read_table(table) is table


WRONG_DATA: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: pl.DataFrame({"text": ["a"]}), IllegalArgumentError, r"no column 'value'; its columns are \['text'\]"),
    (lambda: pl.DataFrame({"value": [1]}), TypeError, "column 'value' has type int64; expected binary or string"),
    (lambda: pd.DataFrame({"value": ["a"], "key": [1.5]}), TypeError, "column 'key' has type double; expected binary"),
    (lambda: duckdb.sql("SELECT [1] AS value"), TypeError, "column 'value' has type list"),
    (
        lambda: pl.DataFrame({"value": ["a"], "headers": ["h"]}),
        TypeError,
        "type string_view; expected a list of structs",
    ),
    (lambda: pl.DataFrame({"value": ["a"], "headers": [[{"key": 1, "value": [1]}]]}), TypeError, "'headers' has type"),
    (lambda: pl.Series("value", ["a"]), TypeError, "expects a table .* not a single column of type Series"),
    (lambda: pl.LazyFrame({"value": ["a"]}), TypeError, "send_arrow.. expects a pyarrow Table .* not LazyFrame"),
    (lambda: [{"value": "a"}], TypeError, "not list"),
    (lambda: None, TypeError, "not NoneType"),
    (lambda: pa.table([["a"], ["b"]], names=["value", "value"]), IllegalArgumentError, "2 columns 'value'"),
]


@pytest.mark.parametrize(("make", "error", "words"), WRONG_DATA)
def test_wrong_data(make: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_table(make())
