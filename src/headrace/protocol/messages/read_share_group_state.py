"""ReadShareGroupState (84). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT8, INT16, INT32, INT64, STRING, UUID, Message, field


class PartitionData(Message):
    partition: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")


class ReadStateData(Message):
    topic_id: Uuid = field(UUID, "0+")
    partitions: list[PartitionData] = field([PartitionData], "0+")


class ReadShareGroupStateRequest(Message, api_key=84, versions="0-0", flexible="0+"):
    group_id: str = field(STRING, "0+")
    topics: list[ReadStateData] = field([ReadStateData], "0+")


class StateBatch(Message):
    first_offset: int = field(INT64, "0+")
    last_offset: int = field(INT64, "0+")
    delivery_state: int = field(INT8, "0+")
    delivery_count: int = field(INT16, "0+")


class PartitionResult(Message):
    partition: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    state_epoch: int = field(INT32, "0+")
    start_offset: int = field(INT64, "0+")
    state_batches: list[StateBatch] = field([StateBatch], "0+")


class ReadStateResult(Message):
    topic_id: Uuid = field(UUID, "0+")
    partitions: list[PartitionResult] = field([PartitionResult], "0+")


class ReadShareGroupStateResponse(Message, api_key=84, versions="0-0", flexible="0+"):
    results: list[ReadStateResult] = field([ReadStateResult], "0+")
