"""Random JSON rows for the compiled reader: fitting, almost fitting, and bytes without meaning."""

import random

import pyarrow as pa

from headrace.pipelines.json_columns import JsonRows, json_text, read_json, trimmed
from headrace.pipelines.json_rows import ObjectReader, write_plain

SCHEMA = pa.schema(
    [
        pa.field("a", pa.string()),
        trimmed("b"),
        json_text("j"),
        pa.field("i", pa.int64()),
        pa.field("k", pa.int32()),
        pa.field("t", pa.int8()),
        pa.field("d", pa.decimal128(16, 2)),
        pa.field("e", pa.decimal128(5, 0)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("f", pa.bool_()),
        pa.field("s", pa.struct([pa.field("x", pa.int64()), trimmed("y")])),
        pa.field("l", pa.list_(pa.struct([pa.field("n", pa.string()), pa.field("m", pa.int64())]))),
        pa.field("p", pa.list_(pa.int64())),
        pa.field("x", pa.float64()),
        pa.field("y", pa.float32()),
        pa.field("day", pa.date32()),
        pa.field("m", pa.map_(pa.string(), pa.float64())),
    ]
)
_READER = ObjectReader(SCHEMA)
_SCALARS = (
    *(
        "null",
        "true",
        "false",
        "0",
        "-0",
        "7",
        "-12",
        "300",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
    ),
    *(
        "9223372036854775808",
        "1.5",
        "0.005",
        "-0.00",
        "1.50",
        "12345678901234.125",
        "99999999999999.99",
        "1e3",
        "123456.7",
        "0.001",
    ),
    *("-0.0", "1e400", "-1E-7", "1e-400", "16777217", "16777217.000000001", "1e23", "0.30000000000000004", "4.9e-324"),
    *("123456789012345678", "1e-40", "1.", ".5", "1e", "1e+", "1e99999", "123456789012345678901.5", '"NaN"', '"-INF"'),
    *('"2026-01-31T23:59:59Z"', '"2026-01-31T23:59:59.5+01:30"', '"2026-01-31"', '"2026-1-3"', '"12026-01-01"'),
    *(
        '""',
        '" "',
        '" x "',
        '"x"',
        '"ü€😀"',
        '"\\u00e9\\ud83d\\ude00"',
        '"\\n\\"\\\\\\/\\u0001"',
        '"\\ud800"',
        '"tab\t"',
    ),
    *('"2026-01-31 23:59:59"', '"2026-01-31 23:59:59.1"', '"2026-02-30 00:00:00"', '"2026-01-01 00:00:00.1234567"'),
    *('"5"', "NaN", "'q'", "nul", "01", "--1", "1..2", "12345678901234567890123"),
)


def fallback(value: bytes) -> bytes | str:
    """Reads a row as `read_json`'s fallback. Invalid rows have the reason `invalid`."""
    try:
        row, fits = _READER.read(value.decode())
    except UnicodeDecodeError:
        return "invalid"
    return write_plain(row, SCHEMA) if fits and row is not None else "invalid"


def read(rows: list[bytes | None]) -> JsonRows:
    return read_json(pa.array(rows, pa.binary()), SCHEMA, fallback)


def read_slowly(rows: list[bytes | None]) -> JsonRows:
    """Reads each row with Python: nothing that the compiled reader gets is plain JSON."""
    waiting = iter([row for row in rows if row is not None])
    unreadable = pa.array([None if row is None else b"?" for row in rows], pa.binary())
    return read_json(unreadable, SCHEMA, lambda _: fallback(next(waiting)))


def buffers(rows: JsonRows) -> list[bytes | None]:
    """Returns the memory of the columns, in which also NaN is equal to NaN, and 0 is not -0."""
    return [buffer and buffer.to_pybytes() for buffer in rows.columns.buffers()]


def random_row(rng: random.Random) -> bytes:
    """Returns an object with fields of the schema, whose values often fit."""
    row = _random_object(rng, [*SCHEMA.names, "other"], depth=0)
    for _ in range(rng.choice((0, 0, 1, 2))):
        row = _damage(row, rng)
    return row


def random_bytes(rng: random.Random) -> bytes:
    alphabet = b'{}[]":,\\u0189e.-+ \n\ttruefalsn"abij\xc3\xbc\xf0\x9f\x98\x80\xff\x00'
    return bytes(rng.choice(alphabet) for _ in range(rng.randrange(60)))


def _random_object(rng: random.Random, names: list[str], depth: int) -> bytes:
    chosen = [rng.choice(names) for _ in range(rng.randrange(8))]
    if rng.random() < 0.9:
        chosen = list(dict.fromkeys(chosen))
    members = [
        _space(rng) + f'"{name}"'.encode() + _space(rng) + b":" + _random_value(rng, name, depth) for name in chosen
    ]
    return b"{" + b",".join(members) + _space(rng) + b"}"


def _random_value(rng: random.Random, name: str, depth: int) -> bytes:
    if rng.random() < 0.1 and depth < 4:
        return rng.choice((_random_object(rng, ["x", "y", "z"], depth + 1), _random_list(rng, depth)))
    if name == "s":
        return _random_object(rng, ["x", "y", "z"], depth + 1)
    if name == "l":
        return b"[" + b",".join(_random_object(rng, ["n", "m"], depth + 1) for _ in range(rng.randrange(4))) + b"]"
    if name == "p":
        return b"[" + b",".join(str(rng.randrange(-5, 99)).encode() for _ in range(rng.randrange(4))) + b"]"
    if name == "j" and depth < 4:
        return rng.choice((_random_object(rng, ["a", "b", "c", "\u00fc"], depth + 1), _random_list(rng, depth)))
    if name == "m":
        return _random_object(rng, ["x", "y", "\\u0041", "\u00fc"], depth + 1)
    fitting = {"a": '"text"', "b": '" text"', "i": "17", "k": "-3", "t": "5", "d": "12.25", "e": "7", "f": "true"}
    fitting |= {"x": "-1.25", "y": "0.1", "day": '"2024-02-29"', "at": '"2026-01-31T00:00:00.25Z"'}
    if name in fitting and rng.random() < 0.7:
        return _space(rng) + fitting[name].encode()
    return _space(rng) + rng.choice(_SCALARS).encode()


def _random_list(rng: random.Random, depth: int) -> bytes:
    return b"[" + b",".join(_random_value(rng, rng.choice("axj"), depth + 1) for _ in range(rng.randrange(4))) + b"]"


def _space(rng: random.Random) -> bytes:
    return b"" if rng.random() < 0.8 else rng.choice((b" ", b"\n", b"\t ", b"\r"))


def _damage(row: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(row) + 1)
    return rng.choice((row[:at], row[:at] + row[at + 1 :], row[:at] + random_bytes(rng)[:3] + row[at:]))
