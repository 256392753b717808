"""FetchSnapshot (59). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, INT64, RECORDS, STRING, UINT16, UUID, Message, Part, field


class SnapshotId(Message):
    end_offset: int = field(INT64, "0+")
    epoch: int = field(INT32, "0+")


class PartitionSnapshotRequest(Message):
    partition: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "0+")
    snapshot_id: SnapshotId = field(SnapshotId, "0+")
    position: int = field(INT64, "0+")
    replica_directory_id: Uuid = field(UUID, "1+", tag=0)


class TopicSnapshotRequest(Message):
    name: str = field(STRING, "0+")
    partitions: list[PartitionSnapshotRequest] = field([PartitionSnapshotRequest], "0+")


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+", tag=0, default=None)
    replica_id: int = field(INT32, "0+", default=-1)
    max_bytes: int = field(INT32, "0+", default=2147483647)
    topics: list[TopicSnapshotRequest] = field([TopicSnapshotRequest], "0+")


class LeaderIdAndEpoch(Message):
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")


class PartitionSnapshotResponse(Message):
    index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    snapshot_id: SnapshotId = field(SnapshotId, "0+")
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, "0+", tag=0)
    size: int = field(INT64, "0+")
    position: int = field(INT64, "0+")
    unaligned_records: Part = field(RECORDS, "0+")


class TopicSnapshotResponse(Message):
    name: str = field(STRING, "0+")
    partitions: list[PartitionSnapshotResponse] = field([PartitionSnapshotResponse], "0+")


class NodeEndpoint(Message):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    topics: list[TopicSnapshotResponse] = field([TopicSnapshotResponse], "0+")
    node_endpoints: list[NodeEndpoint] = field([NodeEndpoint], "1+", tag=0)
