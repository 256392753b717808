"""ShareAcknowledge (79). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, Message, field


class AcknowledgementBatch(Message):
    first_offset: int = field(INT64, "1+")
    last_offset: int = field(INT64, "1+")
    acknowledge_types: list[int] = field([INT8], "1+")


class AcknowledgePartition(Message):
    partition_index: int = field(INT32, "1+")
    acknowledgement_batches: list[AcknowledgementBatch] = field([AcknowledgementBatch], "1+")


class AcknowledgeTopic(Message):
    topic_id: Uuid = field(UUID, "1+")
    partitions: list[AcknowledgePartition] = field([AcknowledgePartition], "1+")


class ShareAcknowledgeRequest(Message, api_key=79, versions="1-2", flexible="1+"):
    group_id: str | None = field(STRING, "1+", nullable="1+", default=None)
    member_id: str | None = field(STRING, "1+", nullable="1+")
    share_session_epoch: int = field(INT32, "1+")
    is_renew_ack: bool = field(BOOL, "2+")
    topics: list[AcknowledgeTopic] = field([AcknowledgeTopic], "1+")


class LeaderIdAndEpoch(Message):
    leader_id: int = field(INT32, "1+")
    leader_epoch: int = field(INT32, "1+")


class PartitionData(Message):
    partition_index: int = field(INT32, "1+")
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "1+")


class ShareAcknowledgeTopicResponse(Message):
    topic_id: Uuid = field(UUID, "1+")
    partitions: list[PartitionData] = field([PartitionData], "1+")


class NodeEndpoint(Message):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(INT32, "1+")
    rack: str | None = field(STRING, "1+", nullable="1+", default=None)


class ShareAcknowledgeResponse(Message, api_key=79, versions="1-2", flexible="1+"):
    throttle_time_ms: int = field(INT32, "1+")
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+", default=None)
    acquisition_lock_timeout_ms: int = field(INT32, "2+")
    responses: list[ShareAcknowledgeTopicResponse] = field([ShareAcknowledgeTopicResponse], "1+")
    node_endpoints: list[NodeEndpoint] = field([NodeEndpoint], "1+")
