"""ShareFetch (78). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, Message, Part, field


class AcknowledgementBatch(Message):
    first_offset: int = field(INT64, "1+")
    last_offset: int = field(INT64, "1+")
    acknowledge_types: list[int] = field([INT8], "1+")


class FetchPartition(Message):
    partition_index: int = field(INT32, "1+")
    acknowledgement_batches: list[AcknowledgementBatch] = field([AcknowledgementBatch], "1+")


class FetchTopic(Message):
    topic_id: Uuid = field(UUID, "1+")
    partitions: list[FetchPartition] = field([FetchPartition], "1+")


class ForgottenTopic(Message):
    topic_id: Uuid = field(UUID, "1+")
    partitions: list[int] = field([INT32], "1+")


class ShareFetchRequest(Message, api_key=78, versions="1-2", flexible="1+"):
    group_id: str | None = field(STRING, "1+", nullable="1+", default=None)
    member_id: str | None = field(STRING, "1+", nullable="1+")
    share_session_epoch: int = field(INT32, "1+")
    max_wait_ms: int = field(INT32, "1+")
    min_bytes: int = field(INT32, "1+")
    max_bytes: int = field(INT32, "1+", default=2147483647)
    max_records: int = field(INT32, "1+")
    batch_size: int = field(INT32, "1+")
    share_acquire_mode: int = field(INT8, "2+")
    is_renew_ack: bool = field(BOOL, "2+")
    topics: list[FetchTopic] = field([FetchTopic], "1+")
    forgotten_topics_data: list[ForgottenTopic] = field([ForgottenTopic], "1+")


class LeaderIdAndEpoch(Message):
    leader_id: int = field(INT32, "1+")
    leader_epoch: int = field(INT32, "1+")


class AcquiredRecords(Message):
    first_offset: int = field(INT64, "1+")
    last_offset: int = field(INT64, "1+")
    delivery_count: int = field(INT16, "1+")


class PartitionData(Message):
    partition_index: int = field(INT32, "1+")
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+", default=None)
    acknowledge_error_code: int = field(INT16, "1+")
    acknowledge_error_message: str | None = field(STRING, "1+", nullable="1+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "1+")
    records: Part = field(RECORDS, "1+")
    acquired_records: list[AcquiredRecords] = field([AcquiredRecords], "1+")


class ShareFetchableTopicResponse(Message):
    topic_id: Uuid = field(UUID, "1+")
    partitions: list[PartitionData] = field([PartitionData], "1+")


class NodeEndpoint(Message):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(INT32, "1+")
    rack: str | None = field(STRING, "1+", nullable="1+", default=None)


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="1+"):
    throttle_time_ms: int = field(INT32, "1+")
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+", default=None)
    acquisition_lock_timeout_ms: int = field(INT32, "1+")
    responses: list[ShareFetchableTopicResponse] = field([ShareFetchableTopicResponse], "1+")
    node_endpoints: list[NodeEndpoint] = field([NodeEndpoint], "1+")
