"""Fetch (1). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, Message, Part, field


class ReplicaState(Message):
    replica_id: int = field(INT32, "15+", default=-1)
    replica_epoch: int = field(INT64, "15+", default=-1)


class FetchPartition(Message):
    partition: int = field(INT32, "4+")
    current_leader_epoch: int = field(INT32, "9+", default=-1)
    fetch_offset: int = field(INT64, "4+")
    last_fetched_epoch: int = field(INT32, "12+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1)
    partition_max_bytes: int = field(INT32, "4+")
    replica_directory_id: Uuid = field(UUID, "17+", tag=0)
    high_watermark: int = field(INT64, "18+", tag=1, default=9223372036854775807)


class FetchTopic(Message):
    topic: str = field(STRING, "4-12")
    topic_id: Uuid = field(UUID, "13+")
    partitions: list[FetchPartition] = field([FetchPartition], "4+")


class ForgottenTopic(Message):
    topic: str = field(STRING, "7-12")
    topic_id: Uuid = field(UUID, "13+")
    partitions: list[int] = field([INT32], "7+")


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = field(STRING, "12+", nullable="12+", tag=0, default=None)
    replica_id: int = field(INT32, "4-14", default=-1)
    replica_state: ReplicaState | None = field(ReplicaState, "15+", tag=1)
    max_wait_ms: int = field(INT32, "4+")
    min_bytes: int = field(INT32, "4+")
    max_bytes: int = field(INT32, "4+", default=2147483647)
    isolation_level: int = field(INT8, "4+")
    session_id: int = field(INT32, "7+")
    session_epoch: int = field(INT32, "7+", default=-1)
    topics: list[FetchTopic] = field([FetchTopic], "4+")
    forgotten_topics_data: list[ForgottenTopic] = field([ForgottenTopic], "7+")
    rack_id: str = field(STRING, "11+")


class EpochEndOffset(Message):
    epoch: int = field(INT32, "12+", default=-1)
    end_offset: int = field(INT64, "12+", default=-1)


class LeaderIdAndEpoch(Message):
    leader_id: int = field(INT32, "12+", default=-1)
    leader_epoch: int = field(INT32, "12+", default=-1)


class SnapshotId(Message):
    end_offset: int = field(INT64, "12+", default=-1)
    epoch: int = field(INT32, "12+", default=-1)


class AbortedTransaction(Message):
    producer_id: int = field(INT64, "4+")
    first_offset: int = field(INT64, "4+")


class PartitionData(Message):
    partition_index: int = field(INT32, "4+")
    error_code: int = field(INT16, "4+")
    high_watermark: int = field(INT64, "4+")
    last_stable_offset: int = field(INT64, "4+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1)
    diverging_epoch: EpochEndOffset | None = field(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = field(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field([AbortedTransaction], "4+", nullable="4+")
    preferred_read_replica: int = field(INT32, "11+", default=-1)
    records: Part | None = field(RECORDS, "4+", nullable="4+")


class FetchableTopicResponse(Message):
    topic: str = field(STRING, "4-12")
    topic_id: Uuid = field(UUID, "13+")
    partitions: list[PartitionData] = field([PartitionData], "4+")


class NodeEndpoint(Message):
    node_id: int = field(INT32, "16+")
    host: str = field(STRING, "16+")
    port: int = field(INT32, "16+")
    rack: str | None = field(STRING, "16+", nullable="16+", default=None)


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int = field(INT32, "4+")
    error_code: int = field(INT16, "7+")
    session_id: int = field(INT32, "7+")
    responses: list[FetchableTopicResponse] = field([FetchableTopicResponse], "4+")
    node_endpoints: list[NodeEndpoint] = field([NodeEndpoint], "16+", tag=0)
