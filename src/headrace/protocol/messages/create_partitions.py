"""CreatePartitions (37). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT16, INT32, STRING, Message, field


class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = field([INT32], "0+")


class CreatePartitionsTopic(Message):
    name: str = field(STRING, "0+")
    count: int = field(INT32, "0+")
    assignments: list[CreatePartitionsAssignment] | None = field([CreatePartitionsAssignment], "0+", nullable="0+")


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = field([CreatePartitionsTopic], "0+")
    timeout_ms: int = field(INT32, "0+")
    validate_only: bool = field(BOOL, "0+")


class CreatePartitionsTopicResult(Message):
    name: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    results: list[CreatePartitionsTopicResult] = field([CreatePartitionsTopicResult], "0+")
