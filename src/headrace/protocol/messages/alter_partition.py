"""AlterPartition (56). Written by tools/generate_messages.py from Kafka 3.9.1's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT8, INT16, INT32, INT64, STRING, UUID, Message, field


class BrokerState(Message):
    broker_id: int = field(INT32, "3+")
    broker_epoch: int = field(INT64, "3+", default=-1)


class PartitionDataRequest(Message):
    partition_index: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    new_isr: list[int] = field([INT32], "0-2")
    new_isr_with_epochs: list[BrokerState] = field([BrokerState], "3+")
    leader_recovery_state: int = field(INT8, "1+")
    partition_epoch: int = field(INT32, "0+")


class TopicDataRequest(Message):
    topic_name: str = field(STRING, "0-1")
    topic_id: Uuid = field(UUID, "2+")
    partitions: list[PartitionDataRequest] = field([PartitionDataRequest], "0+")


class AlterPartitionRequest(Message, api_key=56, versions="0-3", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
    topics: list[TopicDataRequest] = field([TopicDataRequest], "0+")


class PartitionDataResponse(Message):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    isr: list[int] = field([INT32], "0+")
    leader_recovery_state: int = field(INT8, "1+")
    partition_epoch: int = field(INT32, "0+")


class TopicDataResponse(Message):
    topic_name: str = field(STRING, "0-1")
    topic_id: Uuid = field(UUID, "2+")
    partitions: list[PartitionDataResponse] = field([PartitionDataResponse], "0+")


class AlterPartitionResponse(Message, api_key=56, versions="0-3", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    topics: list[TopicDataResponse] = field([TopicDataResponse], "0+")
