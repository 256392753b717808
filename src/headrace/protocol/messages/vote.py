"""Vote (52). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT16, INT32, INT64, STRING, UINT16, UUID, Message, field


class PartitionDataRequest(Message):
    partition_index: int = field(INT32, "0+")
    replica_epoch: int = field(INT32, "0+")
    replica_id: int = field(INT32, "0+")
    replica_directory_id: Uuid = field(UUID, "1+")
    voter_directory_id: Uuid = field(UUID, "1+")
    last_offset_epoch: int = field(INT32, "0+")
    last_offset: int = field(INT64, "0+")
    pre_vote: bool = field(BOOL, "2+")


class TopicDataRequest(Message):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataRequest] = field([PartitionDataRequest], "0+")


class VoteRequest(Message, api_key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    voter_id: int = field(INT32, "1+", default=-1)
    topics: list[TopicDataRequest] = field([TopicDataRequest], "0+")


class PartitionDataResponse(Message):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    vote_granted: bool = field(BOOL, "0+")


class TopicDataResponse(Message):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataResponse] = field([PartitionDataResponse], "0+")


class NodeEndpoint(Message):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class VoteResponse(Message, api_key=52, versions="0-2", flexible="0+"):
    error_code: int = field(INT16, "0+")
    topics: list[TopicDataResponse] = field([TopicDataResponse], "0+")
    node_endpoints: list[NodeEndpoint] = field([NodeEndpoint], "1+", tag=0)
