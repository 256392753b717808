"""What a dead letter says."""

import pytest
from tests.support.console.pipeline_records import dead_letter

from headrace.console.pipelines.dead_letters import parse_dead_letter
from headrace.console.records.rows import Row
from headrace.records import Record


def _row(value: bytes | None) -> Row:
    return Row(3, Record(b"key", value, 1000, (), 17), None, None, -1, -1, -1, None)


def test_a_dead_letter() -> None:
    letter = parse_dead_letter(_row(dead_letter("no id", 5, "AP8=", encoding="base64")))
    assert (letter.partition, letter.offset, letter.reason) == (3, 17, "no id")
    assert letter.as_json()["source"] == {"topic": "raw", "partition": 0, "offset": 5, "timestamp_ms": 5}
    assert letter.bytes_of() == (b"k", b"\x00\xff")


@pytest.mark.parametrize(
    ("value", "fields"),
    [("cut", {"value_bytes": 200_000}), ("?", {"encoding": "base64"}), ("x", {"key": "k" * 100_000})],
)
def test_what_cannot_be_replayed_from_itself(value: str, fields: dict[str, object]) -> None:
    assert parse_dead_letter(_row(dead_letter("r", 5, value, **fields))).bytes_of() is None


def test_a_tombstone_as_source() -> None:
    assert parse_dead_letter(_row(dead_letter("no value", 5, None))).bytes_of() == (b"k", None)


@pytest.mark.parametrize("value", [None, b"text", b"[]", b"\xff", b"{"])
def test_other_records(value: bytes | None) -> None:
    letter = parse_dead_letter(_row(value))
    assert letter.reason is None
    assert letter.as_json()["source"] is None
    assert letter.key == "key"


def test_wrong_types() -> None:
    letter = parse_dead_letter(_row(b'{"reason": 5, "topic": [], "partition": -1, "offset": "x", "value": "\\ud800"}'))
    assert (letter.reason, letter.has_source, letter.value) == (None, False, "?")
