"""ControlledShutdown (7). Written by tools/generate_messages.py from Kafka 3.9.1's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT16, INT32, INT64, STRING, Message, field


class ControlledShutdownRequest(Message, api_key=7, versions="0-3", flexible="3+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "2+", default=-1)


class RemainingPartition(Message):
    topic_name: str = field(STRING, "0+")
    partition_index: int = field(INT32, "0+")


class ControlledShutdownResponse(Message, api_key=7, versions="0-3", flexible="3+"):
    error_code: int = field(INT16, "0+")
    remaining_partitions: list[RemainingPartition] = field([RemainingPartition], "0+")
