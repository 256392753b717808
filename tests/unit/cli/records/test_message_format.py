import json
import struct
import sys
from pathlib import Path

import click
import pytest

from headrace.cli.records.message_format import deserializer, formatter
from headrace.records import ConsumerRecord


def record(key: bytes | None = b"k", value: bytes | None = b"v", **fields: object) -> ConsumerRecord:
    given = {"timestamp": 5, "timestamp_type": 0, "headers": [], **fields}
    return ConsumerRecord("t", 2, 3, 4, given["timestamp"], given["timestamp_type"], key, value, given["headers"])  # type: ignore[arg-type]


ALL = {f"print.{name}": "true" for name in ("timestamp", "partition", "offset", "epoch", "headers", "key")}


@pytest.mark.parametrize(
    ("properties", "given", "expected"),
    [
        ({}, record(), b"v\n"),
        ({}, record(value=None), b"null\n"),
        (ALL, record(), b"CreateTime:5\tPartition:2\tOffset:4\tEpoch:3\tNO_HEADERS\tk\tv\n"),
        (
            ALL,
            record(timestamp_type=1, headers=[("a", b"1"), ("b", None)]),
            b"LogAppendTime:5\tPartition:2\tOffset:4\tEpoch:3\ta:1,b:null\tk\tv\n",
        ),
        ({"print.timestamp": "true"}, record(timestamp=-1, timestamp_type=-1), b"NO_TIMESTAMP\tv\n"),
        ({"print.key": "true", "key.separator": "=", "line.separator": ";"}, record(key=None), b"null=v;"),
        ({"null.literal": "~"}, record(value=None), b"~\n"),
        ({"print.value": "false", "print.key": "true"}, record(), b"k\n"),
        ({"value.deserializer": "LongDeserializer"}, record(value=struct.pack(">q", -7)), b"-7\n"),
        (
            {"value.deserializer": "org.apache.kafka.common.serialization.DoubleDeserializer"},
            record(value=struct.pack(">d", 0.5)),
            b"0.5\n",
        ),
    ],
)
def test_default_formatter(properties: dict[str, str], given: ConsumerRecord, expected: bytes) -> None:
    assert formatter("DefaultMessageFormatter", properties)(given) == expected


def test_json_formatter() -> None:
    shown = json.loads(formatter("json", {})(record(value=b"\xff", headers=[("h", b"x")])))
    assert shown == {
        "topic": "t",
        "partition": 2,
        "offset": 4,
        "timestamp": 5,
        "headers": [["h", "x"]],
        "key": "k",
        "value": "ÿ",
    }


def test_user_formatter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_formats.py").write_text(
        "class Shout:\n"
        "    def __init__(self, properties): self.end = properties['end'].encode()\n"
        "    def __call__(self, record): return record.value.upper() + self.end\n"
        "def length(data): return len(data)\n"
    )
    monkeypatch.chdir(tmp_path)
    try:
        assert formatter("my_formats:Shout", {"end": "!"})(record()) == b"V!"
        assert deserializer("my_formats:length")(b"four") == b"4"
    finally:
        sys.modules.pop("my_formats", None)


@pytest.mark.parametrize("name", ["Nothing", "no_such_module:f", "json:nothing"])
def test_rejects_unknown_name(name: str) -> None:
    with pytest.raises(click.UsageError):
        formatter(name, {})
    with pytest.raises(click.UsageError):
        deserializer(name)


def test_rejects_value_of_wrong_length() -> None:
    with pytest.raises(ValueError, match="3 bytes; expected 8"):
        deserializer("LongDeserializer")(b"abc")


@pytest.mark.parametrize(
    "name", ["OffsetsMessageFormatter", "GroupMetadataMessageFormatter", "TransactionLogMessageFormatter"]
)
def test_internal_formatters_skip_record_without_key(name: str) -> None:
    assert formatter(name, {})(record(key=None)) == b""


@pytest.mark.parametrize(
    ("name", "hint"), [("print.keys", "Did you mean print.key?"), ("frobnicate", "Expected one of key.separator, ")]
)
def test_rejects_unknown_property(name: str, hint: str) -> None:
    with pytest.raises(click.UsageError, match="Unknown formatter property") as raised:
        formatter("DefaultMessageFormatter", {name: "true"})
    assert hint in raised.value.message


def test_deserializers_may_have_their_own_properties() -> None:
    formatter("DefaultMessageFormatter", {"key.deserializer.encoding": "utf-16"})
