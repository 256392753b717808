"""JSON as Arrow columns: reading with a schema, writing members, and joining pieces."""

import json
import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.support.pipelines.json_cases import SCHEMA, read
from tests.support.pipelines.json_fuzzer import fuzz_once

from headrace.pipelines.json_columns import can_read, can_write, join_pieces, json_members, list_items, read_json


def never(value: bytes) -> str:
    raise AssertionError(f"plain JSON was taken for unusual: {value!r}")


def read_one(text: str) -> dict[str, object]:
    """Reads a row that must be plain JSON."""
    row = read_json(pa.array([text]), SCHEMA, never).columns[0].as_py()
    return {name: value for name, value in row.items() if value is not None}


def test_reads_each_type() -> None:
    text = """ {"a": "x\\n\\u00e9\\ud83d\\ude00", "b": "  y ", "j": {"z" : [1, 2.5, "\\u0041", null]},
        "i": -9223372036854775808,
        "k": 2147483647, "t": -128, "d": -12.345, "e": 99999, "at": "2024-02-29 23:59:59.12", "f": true,
        "s": {"x": 1, "q": {"deep": [[]]}, "y": " "}, "l": [{"n": "", "m": 5}, null, {}], "p": [],
        "x": -1.5e-7, "y": 0.1, "day": "2024-02-29", "m": {"a\\u0041": 1, "b": null, "b": 2.5}} """
    assert read_one(text) == {
        "a": "x\né😀",
        "b": "y",
        "j": '{"z":[1,2.5,"A",null]}',
        "i": -(1 << 63),
        "k": (1 << 31) - 1,
        "t": -128,
        "d": Decimal("-12.35"),
        "e": Decimal(99999),
        "at": datetime(2024, 2, 29, 23, 59, 59, 120_000, UTC),
        "f": True,
        "s": {"x": 1, "y": None},
        "l": [{"n": "", "m": 5}, None, {"n": None, "m": None}],
        "p": [],
        "x": -1.5e-7,
        "y": 0.10000000149011612,
        "day": date(2024, 2, 29),
        "m": [("aA", 1.0), ("b", None), ("b", 2.5)],
    }


@pytest.mark.parametrize(
    "text",
    [
        *("0", "0.0", "-0.0", "7", "-12.5", "0.1", "1e22", "1e23", "1E+5", "123456789012345", "1234567890123456789"),
        *("0.000001", "5e-324", "2e-324", "1.7976931348623157e308", "1e309", "-1e999", "0.30000000000000004"),
        *(
            "9007199254740993",
            "9007199254740993.0",
            "3.14159265358979323846",
            "100000000000000000000000",
            "1e-22",
            "1e-23",
        ),
    ],
)
def test_doubles_are_rounded_as_in_python(text: str) -> None:
    row = read_json(pa.array([f'{{"x":{text}}}']), "x DOUBLE", never).columns[0].as_py()
    assert repr(row["x"]) == repr(float(text))


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-01-31T04:05:06Z", datetime(2026, 1, 31, 4, 5, 6, tzinfo=UTC)),
        ("2026-01-31 04:05:06.5+01:30", datetime(2026, 1, 31, 2, 35, 6, 500_000, tzinfo=UTC)),
        ("2026-01-31T04:05:06.123456-00:05", datetime(2026, 1, 31, 4, 10, 6, 123_456, tzinfo=UTC)),
        ("2026-01-31T04:05:06", datetime(2026, 1, 31, 4, 5, 6, tzinfo=UTC)),
    ],
)
def test_times_of_iso_8601(text: str, instant: datetime) -> None:
    values = pa.array([f'{{"at":"{text}"}}'])
    assert read_json(values, "at TIMESTAMP", never).columns[0].as_py() == {"at": instant}
    rejected = read_json(values, "at TIMESTAMP", lambda _: "no", database_times=True)
    assert rejected.invalid == {0: "no"}


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "null", "[]", "{", "{}x", "{} {}", '{"a"}', '{"a":}', '{"a":"x",}', "{,}", '{"a":"x" "b":"y"}'),
        *('{"i":1,"i":2}', '{"i":1.0}', '{"i":"1"}', '{"i":01}', '{"i":-0}', '{"i":9223372036854775808}', '{"i":1e3}'),
        *('{"k":2147483648}', '{"t":128}', '{"d":1e3}', '{"d":1234567890123456}', '{"d":"1.5"}', '{"e":100000}'),
        *('{"a":1}', '{"a":"\\ud800"}', '{"a":"\\x"}', '{"a":"\t"}', '{"\\u0061":"x"}', "{'a':'x'}", '{"a":"x'),
        *('{"at":5}', '{"at":"2026-02-29 00:00:00"}', '{"at":"0000-01-01 00:00:00"}'),
        *('{"j":"text"}', '{"j":{"x":1.50}}', '{"j":{"x":1,"x":2}}', '{"j":7}', '{"j":[1e5]}', '{"j":[-0]}'),
        *(
            '{"x":1.}',
            '{"x":.5}',
            '{"x":1e}',
            '{"x":01}',
            '{"x":-0}',
            '{"x":"NaN"}',
            '{"x":NaN}',
            '{"x":+1}',
            '{"x":1e123456}',
        ),
        *(
            '{"x":1' + "0" * 100 + "}",
            '{"y":16777217}',
            '{"y":1e-40}',
            '{"day":"2026-2-1"}',
            '{"day":5}',
            '{"day":"2026-02-29"}',
        ),
        *('{"m":[]}', '{"m":{"a":"x"}}', '{"m":{a:1}}', '{"m":{"a" 1}}', '{"m":{"a":1,}}', '{"m":{"a":1'),
        *('{"at":"2026-01-01T00:00:00z"}', '{"at":"2026-01-01T00:00:00+1"}', '{"at":"2026-01-01T00:00:00.1234567Z"}'),
        *('{"f":truex}', '{"f":1}', '{"s":[]}', '{"l":{}}', '{"l":[1]}', '{"p":[1,]}', '{"o":1e5}', '{"o":tru}'),
        '{"o":' + "[" * 30 + "]" * 30 + "}",
        '{"' + "x" * 20_000 + '":1}',
    ],
)
def test_what_is_not_plain_goes_to_the_fallback(text: str) -> None:
    seen: list[bytes] = []

    def fallback(value: bytes) -> str:
        seen.append(value)
        return "no"

    rows = read_json(pa.array(["{}", text, '{"a":"x"}']), SCHEMA, fallback)
    assert seen == [text.encode()]
    assert rows.invalid == {1: "no"}
    assert [row and row["a"] for row in rows.columns.to_pylist()] == [None, None, "x"]
    assert rows.columns.is_valid().to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    "value", [b'"\xff"', b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"\xf5\x80\x80\x80"', b'"\xe2\x82"', b'"\x80"']
)
def test_text_that_is_not_utf_8_is_unusual(value: bytes) -> None:
    for name in (b"a", b"other", b"j"):
        rows = read_json(pa.array([b'{"' + name + b'":' + value + b"}"]), SCHEMA, lambda _: "no")
        assert rows.invalid == {0: "no"}


def test_a_fallback_returns_the_row_as_plain_json() -> None:
    plain = b'{"j":"any text","d":99999999999999.99,"at":1000000,"i":5}'
    rows = read_json(pa.array([b"?", b'{"i":1}']), SCHEMA, lambda _: plain)
    first = rows.columns[0].as_py()
    assert (first["j"], first["d"], first["i"]) == ("any text", Decimal("99999999999999.99"), 5)
    assert first["at"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert rows.unusual == [0]
    with pytest.raises(ValueError, match="plain form of an unusual row"):
        read_json(pa.array([b"?"]), SCHEMA, lambda _: b"still not plain")


def test_rows_before_an_unusual_row_stay() -> None:
    """The rest of an unusual row is removed from all columns."""
    broken = '{"a":"lost","l":[{"n":"lost"},{"n":"lost","m":"x"}],"s":{"x":1},"p":[1,2,3]}'
    rows = read([b'{"a":"x","l":[{"n":"y"}]}', broken.encode(), b'{"p":[7]}'])
    rows.columns.validate(full=True)
    assert rows.columns.field("l").values.field("n").to_pylist() == ["y"]
    assert rows.columns.field("p").values.to_pylist() == [7]


def test_slices_nulls_and_chunks() -> None:
    values = pa.array([b'{"i":%d}' % number if number % 3 else None for number in range(20)], pa.binary())
    expected = [number if number % 3 else None for number in range(20)]
    for begin, end in ((0, 20), (5, 17), (9, 10), (4, 4)):
        rows = read_json(values.slice(begin, end - begin), SCHEMA, never)
        assert [row and row["i"] for row in rows.columns.to_pylist()] == expected[begin:end]
    chunked = pa.chunked_array([values.slice(0, 7), values.slice(7)])
    assert read_json(chunked, SCHEMA, never).columns.field("i").to_pylist() == expected
    assert len(read_json(pa.array([], pa.binary()), SCHEMA, never).columns) == 0


def test_types_that_compiled_code_does_not_know() -> None:
    for kind in (
        pa.decimal128(38, 2),
        pa.decimal128(10, 8),
        pa.timestamp("ms", "UTC"),
        pa.uint8(),
        pa.map_(pa.int64(), pa.int64()),
    ):
        schema = pa.schema([pa.field("x", kind)])
        assert not can_read(schema)
        with pytest.raises(TypeError, match="field x"):
            read_json(pa.array([b"{}"]), schema, never)
        with pytest.raises(TypeError, match="column x"):
            json_members({"x": pa.nulls(1, kind)})
        assert not can_write(schema)
    assert can_read(SCHEMA)
    assert not can_write(SCHEMA)


def test_large_decimals_are_read_slowly() -> None:
    values = pa.array(['{"d": 12345678901234567890.5, "at": "2026", "m": {"a": 1}}', None, '{"d": "x"}', "oops"])
    rows = read_json(values, "d DECIMAL(38,1), at TIMESTAMP, m MAP<STRING,INT>")
    assert rows.columns.to_pylist() == [
        {"d": Decimal("12345678901234567890.5"), "at": datetime(2026, 1, 1, tzinfo=UTC), "m": [("a", 1)]},
        *(None, None, None),
    ]
    assert rows.invalid == {2: "JSON that does not fit the schema: d is not decimal(38,1)", 3: "not JSON"}
    for kind in (pa.uint8(), pa.timestamp("ms", "UTC"), pa.date64(), pa.large_string()):
        with pytest.raises(TypeError, match="is not supported"):
            read_json(values, pa.schema([pa.field("x", kind)]))


def test_writes_each_type() -> None:
    instants = [0, -1, 951_868_799_999_999, 253_402_300_800_000_000, -62_167_219_200_000_001]
    members = json_members(
        {
            'te"xt': pa.array(['a"\\\n\x01\x1fü😀', "", None, "x", "\x7f"]),
            "int": pa.array([0, -(1 << 63), (1 << 63) - 1, None, 10]),
            "small": pa.array([0, -128, 127, None, 10], pa.int8()),
            "dec": pa.array([Decimal("0.00"), Decimal("-0.05"), Decimal("12.30"), None, None], pa.decimal128(16, 2)),
            "at": pa.array(instants, pa.timestamp("us", "UTC")),
            "flag": pa.array([True, False, None, None, True]),
            "raw": pa.array(["[1]", None, "{}", None, None]),
        },
        raw=["raw"],
    )
    assert [row.decode() for row in members.to_pylist()] == [
        ',"te\\"xt":"a\\"\\\\\\n\\u0001\\u001Fü😀","int":0,"small":0,"dec":0.00,"at":"1970-01-01T00:00:00.000Z","flag":true,"raw":[1]',
        ',"te\\"xt":"","int":-9223372036854775808,"small":-128,"dec":-0.05,"at":"1969-12-31T23:59:59.999Z","flag":false',
        ',"int":9223372036854775807,"small":127,"dec":12.30,"at":"2000-02-29T23:59:59.999Z","raw":{}',
        ',"te\\"xt":"x","at":"+10000-01-01T00:00:00.000Z"',
        ',"te\\"xt":"\x7f","int":10,"small":10,"at":"-0001-12-31T23:59:59.999Z","flag":true',
    ]


def test_writes_slices_and_nested_structs() -> None:
    struct = pa.array([{"x": 1, "y": {"z": "a"}}, {"x": None, "y": None}, None, {"x": 4, "y": {"z": None}}])
    expected = [b'{"s":{"x":1,"y":{"z":"a"}}', b'{"s":{}', b"{", b'{"s":{"x":4,"y":{}}']
    for begin in range(4):
        assert json_members({"s": struct.slice(begin)}, opening=b"{").to_pylist() == expected[begin:]
    assert json_members({"i": pa.array([], pa.int64())}).to_pylist() == []
    with pytest.raises(ValueError, match="different lengths"):
        json_members({"a": pa.array([1]), "b": pa.array([1, 2])})


def test_joins_pieces() -> None:
    head, own = pa.array([b"h0", b"h1", b"h2"]), pa.array([b"", b"a", b"bc", b"d"])
    assert join_pieces((head, pa.array([0, 0, 2])), b"-", own.slice(1)).to_pylist() == [b"h0-a", b"h0-bc", b"h2-d"]
    assert join_pieces(b"<", (own.slice(2), pa.array([1, 0], pa.uint64())), b">").to_pylist() == [b"<d>", b"<bc>"]
    assert join_pieces(b"x", pa.array([], pa.binary())).to_pylist() == []
    for pieces, message in (
        (((head, pa.array([3])),), "outside of its array"),
        (((head, pa.array([-1])),), "outside of its array"),
        ((head, own), "3 and 4 rows"),
        ((b"x",), "at least one piece"),
        ((pa.array([b"x", None]),), "must not be null"),
    ):
        with pytest.raises(ValueError, match=message):
            join_pieces(*pieces)


def test_items_of_lists() -> None:
    lists = pa.array([[1, 2], None, [], [3], [4, 5]])
    items = list_items(lists)
    assert items.lists.to_pylist() == [0, 0, 3, 4, 4]
    assert items.positions.to_pylist() == [0, 1, 0, 0, 1]
    assert lists.values.take(items.elements).to_pylist() == [1, 2, 3, 4, 5]
    chosen = list_items(lists.slice(2), pa.array([True, None, True]))
    assert (chosen.lists.to_pylist(), chosen.elements.to_pylist()) == ([2, 2], [3, 4])


def test_fuzz() -> None:
    rng = random.Random(7)
    outcomes: Counter[str] = Counter()
    for _ in range(300):
        fuzz_once(rng, outcomes)
    assert min(outcomes[kind] for kind in ("plain", "unusual", "invalid")) > 20


def test_members_are_json() -> None:
    rng = random.Random(3)
    texts = [
        "".join(chr(rng.choice((rng.randrange(128), rng.randrange(0xD800)))) for _ in range(20)) for _ in range(200)
    ]
    written = join_pieces(json_members({"t": pa.array(texts)}, opening=b"{"), b"}")
    assert [json.loads(row)["t"] for row in written.to_pylist()] == texts


def test_example_of_the_module() -> None:
    values = pa.array([b'{"id": 7, "tags": ["a", "b"]}', b"{'id': 8}", b"oops", b'{"id": "x"}', b"[]", b"\xff", None])
    rows = read_json(values, "id BIGINT, name STRING, tags ARRAY<STRING>")
    assert rows.columns.field("id").to_pylist() == [7, 8, None, None, None, None, None]
    assert rows.unusual == [1]
    assert rows.invalid == {
        2: "not JSON",
        3: "JSON that does not fit the schema: id is not bigint",
        4: "not a JSON object",
        5: "not UTF-8 text",
    }
    head = json_members({"id": rows.columns.field("id")}, opening=b"{")
    tags = list_items(rows.columns.field("tags"))
    tag = json_members({"tag": rows.columns.field("tags").values})
    joined = join_pieces((head, tags.lists), (tag, tags.elements), json_members({"seq": tags.positions}), b"}")
    assert joined.to_pylist() == [b'{"id":7,"tag":"a","seq":0}', b'{"id":7,"tag":"b","seq":1}']
