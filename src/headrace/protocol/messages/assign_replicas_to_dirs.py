"""AssignReplicasToDirs (73). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, INT64, UUID, Message, field


class PartitionDataRequest(Message):
    partition_index: int = field(INT32, "0+")


class TopicDataRequest(Message):
    topic_id: Uuid = field(UUID, "0+")
    partitions: list[PartitionDataRequest] = field([PartitionDataRequest], "0+")


class DirectoryDataRequest(Message):
    id_: Uuid = field(UUID, "0+")
    topics: list[TopicDataRequest] = field([TopicDataRequest], "0+")


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0-0", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
    directories: list[DirectoryDataRequest] = field([DirectoryDataRequest], "0+")


class PartitionDataResponse(Message):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class TopicDataResponse(Message):
    topic_id: Uuid = field(UUID, "0+")
    partitions: list[PartitionDataResponse] = field([PartitionDataResponse], "0+")


class DirectoryDataResponse(Message):
    id_: Uuid = field(UUID, "0+")
    topics: list[TopicDataResponse] = field([TopicDataResponse], "0+")


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    directories: list[DirectoryDataResponse] = field([DirectoryDataResponse], "0+")
