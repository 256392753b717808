"""Records as every client must return them, samples of all kinds, and a readable comparison."""

import random
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# A day ago: records older than a week are deleted during the tests, and those more than an hour ahead are rejected.
START_MS = int(time.time()) * 1000 - 24 * 3_600_000
UNICODE = "Grüße ключ 鍵 🔑"
MEGABYTE = 1_000_000

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record that was read, or (with offset -1) is to be written."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    offset: int = -1


def sample_records(partition: int) -> list[Record]:
    """Returns records with every kind of key, value, headers and size; timestamps increase and decrease."""
    noise = random.Random(partition)
    text = UNICODE.encode()
    kinds: list[tuple[bytes | None, bytes | None, Headers]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"", b"empty key", ()),
        (b"tombstone", None, ()),
        (b"empty value", b"", ()),
        (b"", b"", ()),
        (None, None, ()),
        (text, text, (("имя", text),)),
        (b"headers", b"value", (("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1"))),
        (b"odd headers", None, (("null", None), ("empty", b""), ("null", b"not null"))),
        (bytes(range(1, 32)), b"\x00\xff" * 50, (("binary", b"\xff\x01\x80"),)),
        *((f"size {size}".encode(), noise.randbytes(size), ()) for size in (1, 2, 127, 128, 1_000, 16_384, 100_000)),
        # Half of it cannot be compressed, so that requests are large, too.
        (b"large", noise.randbytes(MEGABYTE // 2) + b"large " * (MEGABYTE // 12), ()),
        *((f"many {n}".encode(), f"value {n} ".encode() * (n % 7), ()) for n in range(100)),
        (b"last", b"record", ()),
    ]
    return [
        Record(partition, key, value, headers, START_MS + (number * 37) % 101)
        for number, (key, value, headers) in enumerate(kinds)
    ]


def numbered(count: int, partition: int = 0, at_ms: int = START_MS) -> list[Record]:
    """Returns small records, a second apart."""
    return [
        Record(partition, f"k{n}".encode(), f"v{n}".encode(), timestamp=at_ms + 1000 * n, offset=n)
        for n in range(count)
    ]


def with_offsets(records: Iterable[Record]) -> list[Record]:
    """Returns the records with the offsets that they get in empty partitions."""
    found: dict[int, list[Record]] = {}
    for record in records:
        rows = found.setdefault(record.partition, [])
        rows.append(record._replace(offset=len(rows)))
    return [record for partition in sorted(found) for record in found[partition]]


def assert_same(found: Sequence[Record], expected: Sequence[Record]) -> None:
    """Compares record by record: pytest takes minutes to describe a difference in a megabyte."""
    for number, (one, other) in enumerate(zip(found, expected, strict=False)):
        assert one == other or _differ(number, one, other)
    assert len(found) == len(expected), f"{len(found)} records, but {len(expected)} were expected"


def _differ(number: int, found: Record, expected: Record) -> bool:
    for name, one, other in zip(Record._fields, found, expected, strict=True):
        if one != other:
            raise AssertionError(f"record {number}: {name} is {_short(one)}, but {_short(other)} was expected")
    return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:100]} ... {text[-50:]} ({len(text)} characters)"
