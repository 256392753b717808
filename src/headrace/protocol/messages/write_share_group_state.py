"""WriteShareGroupState (85). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT8, INT16, INT32, INT64, STRING, UUID, Message, field


class StateBatch(Message):
    first_offset: int = field(INT64, "0+")
    last_offset: int = field(INT64, "0+")
    delivery_state: int = field(INT8, "0+")
    delivery_count: int = field(INT16, "0+")


class PartitionData(Message):
    partition: int = field(INT32, "0+")
    state_epoch: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    start_offset: int = field(INT64, "0+")
    delivery_complete_count: int = field(INT32, "1+", default=-1)
    state_batches: list[StateBatch] = field([StateBatch], "0+")


class WriteStateData(Message):
    topic_id: Uuid = field(UUID, "0+")
    partitions: list[PartitionData] = field([PartitionData], "0+")


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+"):
    group_id: str = field(STRING, "0+")
    topics: list[WriteStateData] = field([WriteStateData], "0+")


class PartitionResult(Message):
    partition: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class WriteStateResult(Message):
    topic_id: Uuid = field(UUID, "0+")
    partitions: list[PartitionResult] = field([PartitionResult], "0+")


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = field([WriteStateResult], "0+")
