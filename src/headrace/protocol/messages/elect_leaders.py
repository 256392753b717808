"""ElectLeaders (43). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT8, INT16, INT32, STRING, Message, field


class TopicPartitions(Message):
    topic: str = field(STRING, "0+")
    partitions: list[int] = field([INT32], "0+")


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: int = field(INT8, "1+")
    topic_partitions: list[TopicPartitions] | None = field([TopicPartitions], "0+", nullable="0+")
    timeout_ms: int = field(INT32, "0+", default=60000)


class PartitionResult(Message):
    partition_id: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


class ReplicaElectionResult(Message):
    topic: str = field(STRING, "0+")
    partition_result: list[PartitionResult] = field([PartitionResult], "0+")


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "1+")
    replica_election_results: list[ReplicaElectionResult] = field([ReplicaElectionResult], "0+")
