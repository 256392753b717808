"""DescribeTopicPartitions (75). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT16, INT32, STRING, UUID, Message, field


class TopicRequest(Message):
    name: str = field(STRING, "0+")


class Cursor(Message):
    topic_name: str = field(STRING, "0+")
    partition_index: int = field(INT32, "0+")


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0-0", flexible="0+"):
    topics: list[TopicRequest] = field([TopicRequest], "0+")
    response_partition_limit: int = field(INT32, "0+", default=2000)
    cursor: Cursor | None = field(Cursor, "0+", nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = field(INT16, "0+")
    partition_index: int = field(INT32, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+", default=-1)
    replica_nodes: list[int] = field([INT32], "0+")
    isr_nodes: list[int] = field([INT32], "0+")
    eligible_leader_replicas: list[int] | None = field([INT32], "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = field([INT32], "0+", nullable="0+", default=None)
    offline_replicas: list[int] = field([INT32], "0+")


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = field(INT16, "0+")
    name: str | None = field(STRING, "0+", nullable="0+")
    topic_id: Uuid = field(UUID, "0+")
    is_internal: bool = field(BOOL, "0+")
    partitions: list[DescribeTopicPartitionsResponsePartition] = field([DescribeTopicPartitionsResponsePartition], "0+")
    topic_authorized_operations: int = field(INT32, "0+", default=-2147483648)


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    topics: list[DescribeTopicPartitionsResponseTopic] = field([DescribeTopicPartitionsResponseTopic], "0+")
    next_cursor: Cursor | None = field(Cursor, "0+", nullable="0+", default=None)
