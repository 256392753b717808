"""Rows to write: columns, topics, the digest (against a slow reference), and the end of Spark's input."""

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import IllegalArgumentError
from headrace.spark.columns import by_topic, normalize
from headrace.spark.digest import RowDigest
from headrace.spark.worker_input import InputBrokenOffError, check_end, find_input

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
    ]
)
MASK = 2**64 - 1


def table(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


# ---- the digest, slowly


def fold(a: int, b: int) -> int:
    product = (a & MASK) * (b & MASK)
    return (product & MASK) ^ (product >> 64)


ABSENT, MIX = 0x5851F42D4C957F2D, 0x2545F4914F6CDD1D


def of_bytes(content: bytes | None, seed: int) -> int:
    if content is None:
        return fold(seed ^ ABSENT, MIX)
    found = fold(seed ^ 0x9E3779B97F4A7C15, len(content) + 0xD1B54A32D192ED03)
    whole = len(content) // 16 * 16
    for at in range(0, whole, 16):
        first, second = (int.from_bytes(content[at + n : at + n + 8], "little") for n in (0, 8))
        found = fold(first ^ 0xA0761D6478BD642F, second ^ found)
    rest = content[whole:]
    first, second = int.from_bytes(rest[:8], "little"), int.from_bytes(rest[8:], "little")
    return fold(first ^ 0xE7037ED1A0B428DB, second ^ found ^ 0x8EBC6AF09C88C6E3)


def of_row(row: dict[str, Any]) -> int:
    found = 0
    for name in sorted(row):
        value = row[name]
        if name == "partition":
            found = fold(found ^ (ABSENT if value is None else value & MASK), MIX)
        elif name == "headers":
            if value is None:
                found = fold(found ^ ABSENT, MIX)
                continue
            found = fold(found ^ len(value), MIX)
            for header in value:
                found = fold(found ^ of_bytes(header["value"], of_bytes(as_bytes(header["key"]), 0)), MIX)
        else:
            found = of_bytes(as_bytes(value), found)
    return fold(found ^ MIX, 0x9E3779B97F4A7C15)


def as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def digest(*batches: pa.RecordBatch) -> tuple[int, int]:
    digest = RowDigest()
    for batch in batches:
        digest.update(batch)
    return digest.rows, digest.value


texts = st.none() | st.text("ab€", max_size=40)
rows = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=40),
        "value": texts,
        "topic": texts,
        "partition": st.none() | st.integers(0, 2**31 - 1),
        "headers": st.none()
        | st.lists(
            st.fixed_dictionaries({"key": st.text("hk", max_size=3), "value": st.none() | st.binary(max_size=3)}),
            max_size=3,
        ),
    }
)


@given(st.lists(rows, max_size=12), st.data())
def test_digest_depends_only_on_the_rows(given: list[dict[str, Any]], data: Any) -> None:
    expected = (len(given), sum(map(of_row, given)) & MASK)
    assert digest(table(given)) == expected
    mixed = table(data.draw(st.permutations(given)))
    cut = data.draw(st.integers(0, len(given)))
    assert digest(mixed.slice(0, cut), mixed.slice(cut)) == expected


def test_null_differs_from_empty() -> None:
    row = {"key": b"k", "value": "v", "topic": "t", "partition": 0, "headers": []}
    variants = [
        row,
        {**row, "key": b""},
        {**row, "key": None},
        {**row, "value": None},
        {**row, "value": ""},
        {**row, "headers": None},
        {**row, "headers": [{"key": "", "value": b""}]},
        {**row, "headers": [{"key": "", "value": None}]},
        {**row, "partition": None},
        {**row, "partition": 1},
        {**row, "key": b"v", "value": "k"},
    ]
    assert len({digest(table([each])) for each in variants}) == len(variants)


# ---- columns


def test_keeps_only_written_columns() -> None:
    batch = pa.RecordBatch.from_pydict({"offset": [1], "value": ["v"], "timestamp": [5], "topic": ["t"], "key": [b"k"]})
    assert normalize(batch, True).schema.names == ["key", "value", "topic"]
    assert normalize(batch, False).schema.names == ["key", "value"]


def test_converts_large_types() -> None:
    large = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["v", None], pa.large_string()),
            pa.array([b"k", None], pa.large_binary()),
            pa.array([[{"key": "h", "value": b"x"}], None], large),
            pa.array(["t", "t"], pa.large_string()),
        ],
        names=["value", "key", "headers", "topic"],
    )
    normalized = normalize(batch, True)
    assert [normalized.schema.field(name).type for name in ("key", "value", "headers", "topic")] == [
        pa.binary(),
        pa.binary(),
        HEADERS,
        pa.string(),
    ]
    assert normalized.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}], None]


def test_rejects_negative_partitions() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["v", "w"], "partition": pa.array([None, -1], pa.int32())})
    with pytest.raises(IllegalArgumentError, match="'partition' contains -1"):
        normalize(batch, False)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 99)), min_size=1))
def test_groups_rows_by_topic_in_order(given: list[tuple[str, int]]) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [str(n) for _, n in given], "topic": [name for name, _ in given]})
    found = {name: part.column("value").to_pylist() for name, part in by_topic(batch, None)}
    assert found == {name: [str(n) for each, n in given if each == name] for name in {name for name, _ in given}}


def test_topic_option_overrides_column() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["v"], "topic": ["column"]})
    ((topic, part),) = by_topic(normalize(batch, False), "option")
    assert topic == "option"
    assert part.schema.names == ["value"]


def test_rejects_rows_without_topic() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["v", "w"], "topic": ["t", None]})
    with pytest.raises(IllegalArgumentError, match="'topic' is null"):
        list(by_topic(batch, None))


# ---- the end of the input


def test_end_marker_stays_for_the_worker() -> None:
    stream = io.BufferedReader(io.BytesIO(b"\xff\xff\xff\xfc"))
    check_end(stream)
    assert stream.read() == b"\xff\xff\xff\xfc"


@pytest.mark.parametrize("left", [b"", b"\x00\x00\x00\x01"])
def test_missing_end_marker_is_an_error(left: bytes) -> None:
    with pytest.raises(InputBrokenOffError):
        check_end(io.BufferedReader(io.BytesIO(left)))


def test_no_input_outside_of_a_worker() -> None:
    assert find_input() is None
    check_end(None)


def test_rejects_worker_without_visible_input() -> None:
    code = compile("def process(look):\n    return look()\n", "site-packages/pyspark/worker.py", "exec")
    names: dict[str, Any] = {"__name__": "pyspark.worker"}
    exec(code, names)
    with pytest.raises(RuntimeError, match="at-least-once"):
        names["process"](find_input)

    def generate() -> Iterator[Any]:
        yield find_input()

    shown = compile("def process(look, infile):\n    return look()\n", "site-packages/pyspark/worker.py", "exec")
    exec(shown, names)
    stream = io.BufferedReader(io.BytesIO())
    assert names["process"](lambda: next(generate()), stream) is stream
