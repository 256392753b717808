"""DescribeProducers (61). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT16, INT32, INT64, STRING, Message, field


class TopicRequest(Message):
    name: str = field(STRING, "0+")
    partition_indexes: list[int] = field([INT32], "0+")


class DescribeProducersRequest(Message, api_key=61, versions="0-0", flexible="0+"):
    topics: list[TopicRequest] = field([TopicRequest], "0+")


class ProducerState(Message):
    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT32, "0+")
    last_sequence: int = field(INT32, "0+", default=-1)
    last_timestamp: int = field(INT64, "0+", default=-1)
    coordinator_epoch: int = field(INT32, "0+")
    current_txn_start_offset: int = field(INT64, "0+", default=-1)


class PartitionResponse(Message):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    active_producers: list[ProducerState] = field([ProducerState], "0+")


class TopicResponse(Message):
    name: str = field(STRING, "0+")
    partitions: list[PartitionResponse] = field([PartitionResponse], "0+")


class DescribeProducersResponse(Message, api_key=61, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    topics: list[TopicResponse] = field([TopicResponse], "0+")
