"""OffsetDelete (47). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT16, INT32, STRING, Message, field


class OffsetDeleteRequestPartition(Message):
    partition_index: int = field(INT32, "0+")


class OffsetDeleteRequestTopic(Message):
    name: str = field(STRING, "0+")
    partitions: list[OffsetDeleteRequestPartition] = field([OffsetDeleteRequestPartition], "0+")


class OffsetDeleteRequest(Message, api_key=47, versions="0-0", flexible=""):
    group_id: str = field(STRING, "0+")
    topics: list[OffsetDeleteRequestTopic] = field([OffsetDeleteRequestTopic], "0+")


class OffsetDeleteResponsePartition(Message):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class OffsetDeleteResponseTopic(Message):
    name: str = field(STRING, "0+")
    partitions: list[OffsetDeleteResponsePartition] = field([OffsetDeleteResponsePartition], "0+")


class OffsetDeleteResponse(Message, api_key=47, versions="0-0", flexible=""):
    error_code: int = field(INT16, "0+")
    throttle_time_ms: int = field(INT32, "0+")
    topics: list[OffsetDeleteResponseTopic] = field([OffsetDeleteResponseTopic], "0+")
