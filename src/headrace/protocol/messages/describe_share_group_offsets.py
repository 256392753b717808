"""DescribeShareGroupOffsets (90). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, INT64, STRING, UUID, Message, field


class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: str = field(STRING, "0+")
    partitions: list[int] = field([INT32], "0+")


class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: str = field(STRING, "0+")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
        [DescribeShareGroupOffsetsRequestTopic], "0+", nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions="0-1", flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field([DescribeShareGroupOffsetsRequestGroup], "0+")


class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: int = field(INT32, "0+")
    start_offset: int = field(INT64, "0+")
    leader_epoch: int = field(INT32, "0+")
    lag: int = field(INT64, "1+", default=-1)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: str = field(STRING, "0+")
    topic_id: Uuid = field(UUID, "0+")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(
        [DescribeShareGroupOffsetsResponsePartition], "0+"
    )


class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: str = field(STRING, "0+")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field([DescribeShareGroupOffsetsResponseTopic], "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field([DescribeShareGroupOffsetsResponseGroup], "0+")
