"""OffsetCommit (8). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, INT64, STRING, UUID, Message, field


class OffsetCommitRequestPartition(Message):
    partition_index: int = field(INT32, "2+")
    committed_offset: int = field(INT64, "2+")
    committed_leader_epoch: int = field(INT32, "6+", default=-1)
    committed_metadata: str | None = field(STRING, "2+", nullable="2+")


class OffsetCommitRequestTopic(Message):
    name: str = field(STRING, "2-9")
    topic_id: Uuid = field(UUID, "10+")
    partitions: list[OffsetCommitRequestPartition] = field([OffsetCommitRequestPartition], "2+")


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    group_id: str = field(STRING, "2+")
    generation_id_or_member_epoch: int = field(INT32, "2+", default=-1)
    member_id: str = field(STRING, "2+")
    retention_time_ms: int = field(INT64, "2-4", default=-1)
    group_instance_id: str | None = field(STRING, "7+", nullable="7+", default=None)
    topics: list[OffsetCommitRequestTopic] = field([OffsetCommitRequestTopic], "2+")


class OffsetCommitResponsePartition(Message):
    partition_index: int = field(INT32, "2+")
    error_code: int = field(INT16, "2+")


class OffsetCommitResponseTopic(Message):
    name: str = field(STRING, "2-9")
    topic_id: Uuid = field(UUID, "10+")
    partitions: list[OffsetCommitResponsePartition] = field([OffsetCommitResponsePartition], "2+")


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = field(INT32, "3+")
    topics: list[OffsetCommitResponseTopic] = field([OffsetCommitResponseTopic], "2+")
