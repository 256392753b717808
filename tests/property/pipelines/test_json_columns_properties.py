"""The compiled JSON reader against the slow one, on generated JSON."""

import json
import random
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.pipelines.json_cases import SCHEMA, buffers, random_row, read, read_slowly

NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15),
    st.decimals(-(10**14), 10**14, places=2).map(float),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(), st.datetimes().map(lambda time: str(time)))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
    max_leaves=12,
)
FITTING = {
    "a": st.text(),
    "b": st.text(" x\u00fc", max_size=5),
    "j": VALUES,
    "i": st.integers(-(1 << 63), (1 << 63) - 1),
    "k": st.integers(-(1 << 31), (1 << 31) - 1),
    "t": st.integers(-128, 127),
    "d": st.decimals(-(10**13), 10**13, places=2).map(float),
    "e": st.integers(-99_999, 99_999),
    "at": st.one_of(st.datetimes().map(str), st.datetimes().map(datetime.isoformat)),
    "f": st.booleans(),
    "s": st.fixed_dictionaries({}, optional={"x": st.integers(-(1 << 63), (1 << 63) - 1), "y": st.text()}),
    "l": st.lists(st.fixed_dictionaries({}, optional={"n": st.text(), "m": st.integers(-9, 9)}), max_size=4),
    "p": st.lists(st.integers(-9, 9), max_size=4),
    "x": st.floats(),
    "y": st.floats(),
    "day": st.dates().map(str),
    "m": st.dictionaries(st.text(max_size=3), st.floats(), max_size=4),
}
EVENTS = st.fixed_dictionaries({}, optional={name: st.one_of(values, VALUES) for name, values in FITTING.items()})


def write(event: dict[str, Any], is_ascii: bool, indent: int | None) -> bytes:
    return json.dumps(event, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "surrogatepass")


@given(st.lists(st.builds(write, EVENTS, st.booleans(), st.sampled_from((None, 1))), max_size=5))
def test_generated_events(rows: list[bytes | None]) -> None:
    found, expected = read(rows), read_slowly(rows)
    assert buffers(found) == buffers(expected)
    assert found.invalid == expected.invalid


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=5), st.integers(0, 1 << 30))
def test_any_bytes(rows: list[bytes | None], seed: int) -> None:
    rows = [*rows, random_row(random.Random(seed))]
    found, expected = read(rows), read_slowly(rows)
    assert buffers(found) == buffers(expected)
    assert found.invalid == expected.invalid
    assert len(found.columns) == len(rows)
    assert found.columns.type.num_fields == len(SCHEMA)
