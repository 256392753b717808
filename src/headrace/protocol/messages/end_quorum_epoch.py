"""EndQuorumEpoch (54). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, STRING, UINT16, UUID, Message, field


class ReplicaInfo(Message):
    candidate_id: int = field(INT32, "1+")
    candidate_directory_id: Uuid = field(UUID, "1+")


class PartitionDataRequest(Message):
    partition_index: int = field(INT32, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    preferred_successors: list[int] = field([INT32], "0")
    preferred_candidates: list[ReplicaInfo] = field([ReplicaInfo], "1+")


class TopicDataRequest(Message):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataRequest] = field([PartitionDataRequest], "0+")


class LeaderEndpoint(Message):
    name: str = field(STRING, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class EndQuorumEpochRequest(Message, api_key=54, versions="0-1", flexible="1+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    topics: list[TopicDataRequest] = field([TopicDataRequest], "0+")
    leader_endpoints: list[LeaderEndpoint] = field([LeaderEndpoint], "1+")


class PartitionDataResponse(Message):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")


class TopicDataResponse(Message):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataResponse] = field([PartitionDataResponse], "0+")


class NodeEndpoint(Message):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class EndQuorumEpochResponse(Message, api_key=54, versions="0-1", flexible="1+"):
    error_code: int = field(INT16, "0+")
    topics: list[TopicDataResponse] = field([TopicDataResponse], "0+")
    node_endpoints: list[NodeEndpoint] = field([NodeEndpoint], "1+", tag=0)
