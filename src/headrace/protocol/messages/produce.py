"""Produce (0). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.common.types import Buffer
from headrace.protocol.message import INT16, INT32, INT64, RECORDS, STRING, UUID, Message, field


class PartitionProduceData(Message):
    index: int = field(INT32, "3+")
    records: Buffer | None = field(RECORDS, "3+", nullable="3+")


class TopicProduceData(Message):
    name: str = field(STRING, "3-12")
    topic_id: Uuid = field(UUID, "13+")
    partition_data: list[PartitionProduceData] = field([PartitionProduceData], "3+")


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    acks: int = field(INT16, "3+")
    timeout_ms: int = field(INT32, "3+")
    topic_data: list[TopicProduceData] = field([TopicProduceData], "3+")


class BatchIndexAndErrorMessage(Message):
    batch_index: int = field(INT32, "8+")
    batch_index_error_message: str | None = field(STRING, "8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Message):
    leader_id: int = field(INT32, "10+", default=-1)
    leader_epoch: int = field(INT32, "10+", default=-1)


class PartitionProduceResponse(Message):
    index: int = field(INT32, "3+")
    error_code: int = field(INT16, "3+")
    base_offset: int = field(INT64, "3+")
    log_append_time_ms: int = field(INT64, "3+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field([BatchIndexAndErrorMessage], "8+")
    error_message: str | None = field(STRING, "8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    name: str = field(STRING, "3-12")
    topic_id: Uuid = field(UUID, "13+")
    partition_responses: list[PartitionProduceResponse] = field([PartitionProduceResponse], "3+")


class NodeEndpoint(Message):
    node_id: int = field(INT32, "10+")
    host: str = field(STRING, "10+")
    port: int = field(INT32, "10+")
    rack: str | None = field(STRING, "10+", nullable="10+", default=None)


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field([TopicProduceResponse], "3+")
    throttle_time_ms: int = field(INT32, "3+")
    node_endpoints: list[NodeEndpoint] = field([NodeEndpoint], "10+", tag=0)
