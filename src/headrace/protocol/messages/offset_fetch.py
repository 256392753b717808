"""OffsetFetch (9). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT16, INT32, INT64, STRING, UUID, Message, field


class OffsetFetchRequestTopic(Message):
    name: str = field(STRING, "1-7")
    partition_indexes: list[int] = field([INT32], "1-7")


class OffsetFetchRequestTopics(Message):
    name: str = field(STRING, "8-9")
    topic_id: Uuid = field(UUID, "10+")
    partition_indexes: list[int] = field([INT32], "8+")


class OffsetFetchRequestGroup(Message):
    group_id: str = field(STRING, "8+")
    member_id: str | None = field(STRING, "9+", nullable="9+", default=None)
    member_epoch: int = field(INT32, "9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field([OffsetFetchRequestTopics], "8+", nullable="8+")


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+"):
    group_id: str = field(STRING, "1-7")
    topics: list[OffsetFetchRequestTopic] | None = field([OffsetFetchRequestTopic], "1-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field([OffsetFetchRequestGroup], "8+")
    require_stable: bool = field(BOOL, "7+")


class OffsetFetchResponsePartition(Message):
    partition_index: int = field(INT32, "1-7")
    committed_offset: int = field(INT64, "1-7")
    committed_leader_epoch: int = field(INT32, "5-7", default=-1)
    metadata: str | None = field(STRING, "1-7", nullable="1-7")
    error_code: int = field(INT16, "1-7")


class OffsetFetchResponseTopic(Message):
    name: str = field(STRING, "1-7")
    partitions: list[OffsetFetchResponsePartition] = field([OffsetFetchResponsePartition], "1-7")


class OffsetFetchResponsePartitions(Message):
    partition_index: int = field(INT32, "8+")
    committed_offset: int = field(INT64, "8+")
    committed_leader_epoch: int = field(INT32, "8+", default=-1)
    metadata: str | None = field(STRING, "8+", nullable="8+")
    error_code: int = field(INT16, "8+")


class OffsetFetchResponseTopics(Message):
    name: str = field(STRING, "8-9")
    topic_id: Uuid = field(UUID, "10+")
    partitions: list[OffsetFetchResponsePartitions] = field([OffsetFetchResponsePartitions], "8+")


class OffsetFetchResponseGroup(Message):
    group_id: str = field(STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = field([OffsetFetchResponseTopics], "8+")
    error_code: int = field(INT16, "8+")


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int = field(INT32, "3+")
    topics: list[OffsetFetchResponseTopic] = field([OffsetFetchResponseTopic], "1-7")
    error_code: int = field(INT16, "2-7")
    groups: list[OffsetFetchResponseGroup] = field([OffsetFetchResponseGroup], "8+")
