"""DescribeQuorum (55). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, INT64, STRING, UINT16, UUID, Message, field


class PartitionDataRequest(Message):
    partition_index: int = field(INT32, "0+")


class TopicDataRequest(Message):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataRequest] = field([PartitionDataRequest], "0+")


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[TopicDataRequest] = field([TopicDataRequest], "0+")


class ReplicaState(Message):
    replica_id: int = field(INT32, "0+")
    replica_directory_id: Uuid = field(UUID, "2+")
    log_end_offset: int = field(INT64, "0+")
    last_fetch_timestamp: int = field(INT64, "1+", default=-1)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1)


class PartitionDataResponse(Message):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "2+", nullable="2+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    high_watermark: int = field(INT64, "0+")
    current_voters: list[ReplicaState] = field([ReplicaState], "0+")
    observers: list[ReplicaState] = field([ReplicaState], "0+")


class TopicDataResponse(Message):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataResponse] = field([PartitionDataResponse], "0+")


class Listener(Message):
    name: str = field(STRING, "2+")
    host: str = field(STRING, "2+")
    port: int = field(UINT16, "2+")


class Node(Message):
    node_id: int = field(INT32, "2+")
    listeners: list[Listener] = field([Listener], "2+")


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "2+", nullable="2+")
    topics: list[TopicDataResponse] = field([TopicDataResponse], "0+")
    nodes: list[Node] = field([Node], "2+")
