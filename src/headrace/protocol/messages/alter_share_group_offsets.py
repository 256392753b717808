"""AlterShareGroupOffsets (91). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, INT64, STRING, UUID, Message, field


class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: int = field(INT32, "0+")
    start_offset: int = field(INT64, "0+")


class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: str = field(STRING, "0+")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field([AlterShareGroupOffsetsRequestPartition], "0+")


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions="0-0", flexible="0+"):
    group_id: str = field(STRING, "0+")
    topics: list[AlterShareGroupOffsetsRequestTopic] = field([AlterShareGroupOffsetsRequestTopic], "0+")


class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: str = field(STRING, "0+")
    topic_id: Uuid = field(UUID, "0+")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field([AlterShareGroupOffsetsResponsePartition], "0+")


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field([AlterShareGroupOffsetsResponseTopic], "0+")
