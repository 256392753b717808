"""ListOffsets (2). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT8, INT16, INT32, INT64, STRING, Message, field


class ListOffsetsPartition(Message):
    partition_index: int = field(INT32, "1+")
    current_leader_epoch: int = field(INT32, "4+", default=-1)
    timestamp: int = field(INT64, "1+")


class ListOffsetsTopic(Message):
    name: str = field(STRING, "1+")
    partitions: list[ListOffsetsPartition] = field([ListOffsetsPartition], "1+")


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    replica_id: int = field(INT32, "1+")
    isolation_level: int = field(INT8, "2+")
    topics: list[ListOffsetsTopic] = field([ListOffsetsTopic], "1+")
    timeout_ms: int = field(INT32, "10+")


class ListOffsetsPartitionResponse(Message):
    partition_index: int = field(INT32, "1+")
    error_code: int = field(INT16, "1+")
    timestamp: int = field(INT64, "1+", default=-1)
    offset: int = field(INT64, "1+", default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = field(STRING, "1+")
    partitions: list[ListOffsetsPartitionResponse] = field([ListOffsetsPartitionResponse], "1+")


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = field(INT32, "2+")
    topics: list[ListOffsetsTopicResponse] = field([ListOffsetsTopicResponse], "1+")
