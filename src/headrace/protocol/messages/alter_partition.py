"""AlterPartition (56). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT8, INT16, INT32, INT64, UUID, Message, field


class BrokerState(Message):
    broker_id: int = field(INT32, "3+")
    broker_epoch: int = field(INT64, "3+", default=-1)


class PartitionDataRequest(Message):
    partition_index: int = field(INT32, "2+")
    leader_epoch: int = field(INT32, "2+")
    new_isr: list[int] = field([INT32], "2")
    new_isr_with_epochs: list[BrokerState] = field([BrokerState], "3+")
    leader_recovery_state: int = field(INT8, "2+")
    partition_epoch: int = field(INT32, "2+")


class TopicDataRequest(Message):
    topic_id: Uuid = field(UUID, "2+")
    partitions: list[PartitionDataRequest] = field([PartitionDataRequest], "2+")


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="2+"):
    broker_id: int = field(INT32, "2+")
    broker_epoch: int = field(INT64, "2+", default=-1)
    topics: list[TopicDataRequest] = field([TopicDataRequest], "2+")


class PartitionDataResponse(Message):
    partition_index: int = field(INT32, "2+")
    error_code: int = field(INT16, "2+")
    leader_id: int = field(INT32, "2+")
    leader_epoch: int = field(INT32, "2+")
    isr: list[int] = field([INT32], "2+")
    leader_recovery_state: int = field(INT8, "2+")
    partition_epoch: int = field(INT32, "2+")


class TopicDataResponse(Message):
    topic_id: Uuid = field(UUID, "2+")
    partitions: list[PartitionDataResponse] = field([PartitionDataResponse], "2+")


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "2+")
    error_code: int = field(INT16, "2+")
    topics: list[TopicDataResponse] = field([TopicDataResponse], "2+")
