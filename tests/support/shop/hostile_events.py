"""Hostile records for the ODS topics: strange values in every field, and random changes of valid events."""

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

STRANGE_VALUES = (
    *('""', '" "', '"  x  "', '"\\t x"', '"\u00a0x"', '"null"', "null", "true", "false", "[]", "{}", "[null]", "[[]]"),
    *("0", "-0", "-1", "1.0", "1.50", "-0.0", "1e2", "1E-2", "0.001", "0.0001", "12345678.5", "1234567.125", "100.00"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "2147483648"),
    *(
        "123456789012345678901234567890",
        "1" * 400,
        "0." + "1" * 400,
        "NaN",
        "-Infinity",
        "+INF",
        "INF",
        "1e400",
        "1e-400",
    ),
    *("01", "1.", ".5", "+1", "0x10", "1_000", "tru", "nul", "'x'", "'a\\'b'", '"a\\\'b"', "undefined", "", ",", "}"),
    *('"7"', '" 7"', '"7.50"', '"1,234.5"', '"1e3"', '"much"', '"\u0661"', '"+5"', '"5."', "99999999999999.99"),
    *("99999999999999.995", "0.005", "-0.005", "0.015", "99999999999999", "100000000000000", "1234567890123456.7"),
    *('"2026-01-01 00:00:00"', '"2026-01-01 00:00:00.1"', '"2026-02-29 00:00:00"', '"2024-02-29 23:59:59.999999"'),
    *('"2026-01-01 00:00:00.1234567"', '"2026-01-01 00:00:00.12.12"', '"2026-01-01 00:00:00.123456.123"'),
    *(
        '"2026-01-01 00:00:00.123.123"',
        '"2026-01-01T00:00:00"',
        '"2026-1-1 0:0:0"',
        '"2026-01-01 24:00:00"',
        '"2026-01-01"',
    ),
    *(
        '"0000-01-01 00:00:00"',
        '"0001-01-01 00:00:00"',
        '"+10000-01-01 00:00:00"',
        '"9999-12-31 23:59:60"',
        '" 2026-01-01 00:00:00"',
    ),
    *(
        '"1582-10-10 00:00:00"',
        '"-001-01-01 00:00:00"',
        "1767225600",
        "99999999999",
        "-99999999999999",
        "9223372036854",
    ),
    *(
        '"\\u0041\\u00e9\\ud83d\\ude00"',
        '"\\ud800"',
        '"\\udc00x"',
        '"\\u0000\\u001f\\b\\f\\n\\r\\t\\"\\\\\\/"',
        '"\\x"',
        '"\\u12"',
    ),
    *('"tab\there"', '"new\nline"', '"\x00"', '"\x7f"', '"ü€😀"', '{"a":"\\ud800"}', '{"a": 1.50, "b" : [ 1 , NaN ]}'),
    *(
        '{"a":1,"a":2}',
        '{"a":{"b":1},"a":null}',
        '[{"ts":1}]',
        '[{"item":1},3]',
        '[{"order":"x","pos_id":1}]',
        '[3,{"ts":5}]',
    ),
    *(
        '{"during_time":"x","page_id":"p"}',
        '{"loading_time":1.5}',
        '{"error_code":"x","msg":7}',
        '{"mid":{"a":[1,2.0]}}',
    ),
    *(
        '"{}"',
        '"{\\"id\\":1}"',
        '"{\\"id\\": 1} x"',
        "\"{'id': 1}\"",
        '"{oops"',
        '"{\\"id\\":1,\\"id\\":2}"',
        '" {}"',
        '"[]"',
    ),
    *(
        '"{\\"id\\":\\"x\\",\\"mid\\":\\"a\\tb\\"}"',
        '"{\\"total_amount\\":1.005}"',
        '"{}]"',
        '"{} "',
        '"{\\"a\\":NaN}"',
    ),
    *("[" * 30 + "]" * 30, "[" * 999 + "]" * 999, "[" * 1001 + "]" * 1001, '{"a":' * 50 + "1" + "}" * 50),
    *(
        '"insert"',
        '"update"',
        '"delete"',
        '"upsert"',
        '"1"',
        '"TRUE"',
        '" 1 "',
        "1767225600000",
        "4102444800001",
        "946684799999",
    ),
)
"""JSON values, and text that is no JSON value."""

STRANGE_RECORDS: tuple[bytes | None, ...] = (
    None,
    *(
        b"",
        b" ",
        b"\n",
        b"\t ",
        b"null",
        b"[]",
        b"{}",
        b'"x"',
        b"7",
        b"7x",
        b"NaN",
        b"'x'",
        b"{",
        b"}",
        b"\xff",
        b"\x00",
    ),
    *(
        b"\xef\xbb\xbf{}",
        b"\xfe\xff\x00{\x00}",
        b"{}{}",
        b"{} x",
        b" {}",
        b"\n{}",
        b"//c\n{}",
        b"{/**/}",
        b"{a:1}",
        b"{,}",
    ),
    *(
        b'{"event_id":"\xed\xa0\x80"}',
        b'{"event_id":"\xc0\xaf"}',
        b'{"event_id":"\xf5\x80\x80\x80"}',
        b'{"x":"\xe2\x82"}',
    ),
    *(
        b'{"' + b"k" * 50_001 + b'":1}',
        b'{"event_id":' + b"1" * 1001 + b"}",
        b'{"x":' + b"[" * 1000 + b"]" * 1000 + b"}",
    ),
)
_MEMBER = re.compile(rb'("[a-z_]+":)("(?:[^"\\]|\\.)*"|-?[0-9.]+|null|true|false)')


def with_strange_values(event: bytes, values: Sequence[str] = STRANGE_VALUES) -> Iterator[bytes]:
    """Yields an event with each strange value in place of each value of a field, of whatever kind."""
    content = json.loads(event)

    def paths(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, inner in items:
            yield (*path, name)
            yield from paths(inner, (*path, name))

    for path in paths(content):
        changed = json.loads(event)
        place = changed
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = "@here@"
        template = json.dumps(changed, ensure_ascii=False)
        for value in values:
            yield template.replace('"@here@"', value).encode()


def random_object(fields: Iterable[pa.Field], rng: random.Random) -> str:
    """Returns an object whose fields mostly fit a schema, in any order, with spaces, unknown and repeated fields."""
    chosen = [field for field in fields if rng.random() < 0.9]
    rng.shuffle(chosen)
    if chosen and rng.random() < 0.05:
        chosen.append(rng.choice(chosen))
    members = [
        f"{json.dumps(field.name)}{_space(rng)}:{_space(rng)}{_random_value(field.type, rng)}" for field in chosen
    ]
    if rng.random() < 0.1:
        members.insert(0, f'"unknown":{rng.choice(STRANGE_VALUES[:100])}')
    return f"{{{_space(rng)}{f'{_space(rng)},'.join(members)}{_space(rng)}}}"


def _space(rng: random.Random) -> str:
    return "" if rng.random() < 0.9 else rng.choice((" ", "\n", "\t", "\r\n"))


def _random_value(kind: pa.DataType, rng: random.Random) -> str:
    if rng.random() < 0.03:
        return rng.choice(STRANGE_VALUES)
    if rng.random() < 0.03:
        return "null"
    if pa.types.is_struct(kind):
        return random_object(kind, rng)
    if pa.types.is_list(kind):
        return f"[{','.join(_random_value(kind.value_type, rng) for _ in range(rng.randrange(4)))}]"
    if pa.types.is_map(kind):
        return f'{{"k":{_random_value(kind.item_type, rng)}}}'
    if pa.types.is_integer(kind):
        return str(rng.randrange(-100, 1 << (kind.bit_width - 1)) >> rng.randrange(kind.bit_width))
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return str(round(rng.uniform(-10, 10 ** rng.randrange(1, 9)), rng.randrange(4)))
    if pa.types.is_boolean(kind):
        return rng.choice(("true", "false"))
    if pa.types.is_timestamp(kind):
        day = f"{rng.randrange(1900, 2100)}-{rng.randrange(1, 14):02d}-{rng.randrange(1, 32):02d}"
        return f'"{day} 12:{rng.randrange(66):02d}:00{rng.choice(("", ".5", ".123456"))}"'
    letters = rng.choice((" ab", 'a"\\\n\t', "ü€😀\x7f\u2028", "0123456789"))
    return json.dumps("".join(rng.choice(letters) for _ in range(rng.randrange(6))), ensure_ascii=rng.random() < 0.5)


def mutated(event: bytes, rng: random.Random) -> bytes:
    """Returns an event with one to three random changes."""
    for _ in range(rng.randrange(1, 4)):
        event = rng.choice(_MUTATIONS)(event, rng)
    return event


def _flip(event: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(event))
    return event[:at] + bytes([event[at] ^ (1 << rng.randrange(8))]) + event[at + 1 :]


def _delete(event: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(event))
    return event[:at] + event[at + rng.randrange(1, 5) :] or b" "


def _insert(event: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(event) + 1)
    piece = rng.choice(
        [
            b'"',
            b",",
            b":",
            b"{",
            b"}",
            b"[",
            b"]",
            b" ",
            b"\n",
            b"\\",
            b"0",
            b"-",
            b".",
            b"e5",
            b"\x00",
            b"'",
            "ü".encode(),
        ]
    )
    return event[:at] + piece + event[at:]


def _replace_value(event: bytes, rng: random.Random) -> bytes:
    members = list(_MEMBER.finditer(event))
    if not members:
        return event + b" "
    member = rng.choice(members)
    return event[: member.start(2)] + rng.choice(STRANGE_VALUES).encode() + event[member.end(2) :]


def _repeat_member(event: bytes, rng: random.Random) -> bytes:
    members = list(_MEMBER.finditer(event))
    if not members:
        return event + b"\t"
    source, place = rng.choice(members), rng.choice(members)
    return event[: place.start()] + source.group() + b"," + event[place.start() :]


def _swap_piece(event: bytes, rng: random.Random) -> bytes:
    one, other = sorted(rng.randrange(len(event) + 1) for _ in range(2))
    return event[other:] + event[one:other] + event[:one] or b"{}"


_MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _delete,
    _insert,
    *([_replace_value] * 4),
    *([_repeat_member] * 2),
    _swap_piece,
)
