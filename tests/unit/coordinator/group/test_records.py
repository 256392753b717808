"""The bytes of `__consumer_offsets` records in all versions."""

import pytest

from headrace.common.errors import CorruptRecordError
from headrace.common.types import TopicPartition
from headrace.coordinator.group.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    group_record,
    offset_record,
)
from headrace.protocol import encode

TP = TopicPartition("top", 3)
MEMBER = MemberMetadata(
    member_id="m",
    group_instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=2,
    session_timeout_ms=1,
    subscription=b"s",
    assignment=b"a",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer", generation=4, protocol="range", leader="m", state_timestamp_ms=9, members=[MEMBER]
)


def test_offset_has_kafka_format() -> None:
    value = OffsetCommitValue(offset=258, leader_epoch=5, metadata="no", commit_timestamp_ms=1000)
    record = offset_record("g", TP, value)
    assert record.key == b"\0\1\0\1g\0\3top\0\0\0\3"
    assert record.value == b"\0\3\0\0\0\0\0\0\1\2\0\0\0\5\0\2no\0\0\0\0\0\0\3\xe8"
    assert decode_key(record.key) == OffsetCommitKey(group="g", topic="top", partition=3)
    assert decode_offset_value(record.value) == value


def test_offset_with_expiration_uses_version_1() -> None:
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp_ms=2, expire_timestamp_ms=3)
    record = offset_record("g", TP, value)
    assert record.value is not None
    assert record.value[:2] == b"\0\1"
    assert decode_offset_value(record.value) == value


def test_group_has_kafka_format() -> None:
    record = group_record("g", GROUP)
    assert record.key == b"\0\2\0\1g"
    assert record.value == (
        b"\0\3" b"\0\x08consumer" b"\0\0\0\4" b"\0\5range" b"\0\1m" b"\0\0\0\0\0\0\0\x09" b"\0\0\0\1"
        b"\0\1m" b"\0\1i" b"\0\1c" b"\0\2/h" b"\0\0\0\2" b"\0\0\0\1" b"\0\0\0\1s" b"\0\0\0\1a"
    )  # fmt: skip
    assert decode_key(record.key) == GroupMetadataKey(group="g")
    assert decode_group_value(record.value) == GROUP


def test_tombstones() -> None:
    assert offset_record("g", TP, None).value is None
    assert group_record("g", None).value is None


@pytest.mark.parametrize("version", range(5))
def test_decodes_all_versions(version: int) -> None:
    prefix = version.to_bytes(2, "big")
    offset = decode_offset_value(prefix + encode(OffsetCommitValue(offset=7, leader_epoch=2, metadata="x"), version))
    assert (offset.offset, offset.metadata) == (7, "x")
    assert offset.leader_epoch == (2 if version >= 3 else -1)
    group = decode_group_value(prefix + encode(GROUP, version))
    (member,) = group.members
    assert (group.generation, group.leader, member.assignment) == (4, "m", b"a")
    assert member.rebalance_timeout_ms == (2 if version >= 1 else 1)
    assert member.group_instance_id == ("i" if version >= 3 else None)
    assert group.state_timestamp_ms == (9 if version >= 2 else -1)


def test_skips_unknown_key_types() -> None:
    assert decode_key(b"\0\3whatever") is None
    assert decode_key(b"\0\0\0\1g\0\1t\0\0\0\0") == OffsetCommitKey(group="g", topic="t", partition=0)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0\5g", b"\0\2\0\5g"])
def test_unreadable_key_raises(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_key(data)


@pytest.mark.parametrize("data", [b"", b"\0\3", b"\0\3\0\0", b"\0\x09" + bytes(40)])
def test_unreadable_value_raises(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_offset_value(data)
    with pytest.raises(CorruptRecordError):
        decode_group_value(data)
