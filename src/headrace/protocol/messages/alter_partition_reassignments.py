"""AlterPartitionReassignments (45). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT16, INT32, STRING, Message, field


class ReassignablePartition(Message):
    partition_index: int = field(INT32, "0+")
    replicas: list[int] | None = field([INT32], "0+", nullable="0+", default=None)


class ReassignableTopic(Message):
    name: str = field(STRING, "0+")
    partitions: list[ReassignablePartition] = field([ReassignablePartition], "0+")


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = field(INT32, "0+", default=60000)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = field([ReassignableTopic], "0+")


class ReassignablePartitionResponse(Message):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


class ReassignableTopicResponse(Message):
    name: str = field(STRING, "0+")
    partitions: list[ReassignablePartitionResponse] = field([ReassignablePartitionResponse], "0+")


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = field([ReassignableTopicResponse], "0+")
