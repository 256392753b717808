"""The records of `__consumer_offsets`, in Kafka's format.

A key starts with an int16 that is its type, a value with an int16 that is its version:

    key 0, 1   group, topic, partition       value 0-4   the committed offset           (version 3 is written)
    key 2      group                         value 0-4   generation and members         (version 3 is written)

A record without a value is a tombstone. Records with other key types belong to unsupported group types. They are
skipped, as in Kafka, so that this broker can read the log of a newer broker.
"""

import struct

from headrace.common.errors import CorruptRecordError
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorRecord
from headrace.protocol import Message, decode, encode
from headrace.protocol.message import BYTES, INT32, INT64, STRING, UUID, ProtocolError, field

_VERSION = struct.Struct(">h")

_OFFSET_KEY_VERSIONS = (0, 1)
_OFFSET_KEY_VERSION = 1
_OFFSET_VALUE_VERSION = 3
_OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
_GROUP_KEY_VERSION = 2
_GROUP_VALUE_VERSION = 3


class OffsetCommitKey(Message, versions="0-1"):
    group: str = field(STRING, "0+")
    topic: str = field(STRING, "0+")
    partition: int = field(INT32, "0+")

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = field(INT64, "0+")
    leader_epoch: int = field(INT32, "3+", default=-1)
    metadata: str = field(STRING, "0+")
    commit_timestamp_ms: int = field(INT64, "0+")
    expire_timestamp_ms: int = field(INT64, "1", default=-1)
    topic_id: Uuid = field(UUID, "4+", tag=0, default=ZERO_UUID)


class GroupMetadataKey(Message, versions="2-2"):
    group: str = field(STRING, "2+")


class MemberMetadata(Message):
    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    rebalance_timeout_ms: int = field(INT32, "1+")
    session_timeout_ms: int = field(INT32, "0+")
    subscription: bytes = field(BYTES, "0+")
    assignment: bytes = field(BYTES, "0+")


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = field(STRING, "0+")
    generation: int = field(INT32, "0+")
    protocol: str | None = field(STRING, "0+", nullable="0+")
    leader: str | None = field(STRING, "0+", nullable="0+")
    state_timestamp_ms: int = field(INT64, "2+", default=-1)
    members: list[MemberMetadata] = field([MemberMetadata], "0+")


Key = OffsetCommitKey | GroupMetadataKey


def decode_key(data: bytes) -> Key | None:
    """Returns the key of an offset or a group, or None for an unknown key type."""
    version = _version(data)
    try:
        if version in _OFFSET_KEY_VERSIONS:
            return decode(OffsetCommitKey, version, data, _VERSION.size)
        if version == _GROUP_KEY_VERSION:
            return decode(GroupMetadataKey, version, data, _VERSION.size)
    except ProtocolError as error:
        raise CorruptRecordError(f"Unreadable key in __consumer_offsets: {error}") from error
    return None


def decode_offset_value(data: bytes) -> OffsetCommitValue:
    try:
        return decode(OffsetCommitValue, _version(data), data, _VERSION.size)
    except ProtocolError as error:
        raise CorruptRecordError(f"Unreadable offset in __consumer_offsets: {error}") from error


def decode_group_value(data: bytes) -> GroupMetadataValue:
    version = _version(data)
    try:
        value = decode(GroupMetadataValue, version, data, _VERSION.size)
    except ProtocolError as error:
        raise CorruptRecordError(f"Unreadable group in __consumer_offsets: {error}") from error
    if version == 0:
        for member in value.members:
            member.rebalance_timeout_ms = member.session_timeout_ms
    return value


def offset_record(group: str, tp: TopicPartition, value: OffsetCommitValue | None) -> CoordinatorRecord:
    """Returns the record of a committed offset, or its tombstone."""
    key = encode(OffsetCommitKey(group=group, topic=tp.topic, partition=tp.partition), _OFFSET_KEY_VERSION)
    if value is None:
        return CoordinatorRecord(_VERSION.pack(_OFFSET_KEY_VERSION) + key, None)
    version = _OFFSET_VALUE_VERSION if value.expire_timestamp_ms < 0 else _OFFSET_VALUE_VERSION_WITH_EXPIRY
    return CoordinatorRecord(_VERSION.pack(_OFFSET_KEY_VERSION) + key, _VERSION.pack(version) + encode(value, version))


def group_record(group: str, value: GroupMetadataValue | None) -> CoordinatorRecord:
    """Returns the record of a group's generation and members, or its tombstone."""
    key = _VERSION.pack(_GROUP_KEY_VERSION) + encode(GroupMetadataKey(group=group), _GROUP_KEY_VERSION)
    if value is None:
        return CoordinatorRecord(key, None)
    return CoordinatorRecord(key, _VERSION.pack(_GROUP_VALUE_VERSION) + encode(value, _GROUP_VALUE_VERSION))


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise CorruptRecordError(f"Record in __consumer_offsets is too short for a version: {data!r}")
    version: int = _VERSION.unpack_from(data)[0]
    return version
