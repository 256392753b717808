"""ListPartitionReassignments (46). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT16, INT32, STRING, Message, field


class ListPartitionReassignmentsTopics(Message):
    name: str = field(STRING, "0+")
    partition_indexes: list[int] = field([INT32], "0+")


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0-0", flexible="0+"):
    timeout_ms: int = field(INT32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        [ListPartitionReassignmentsTopics], "0+", nullable="0+"
    )


class OngoingPartitionReassignment(Message):
    partition_index: int = field(INT32, "0+")
    replicas: list[int] = field([INT32], "0+")
    adding_replicas: list[int] = field([INT32], "0+")
    removing_replicas: list[int] = field([INT32], "0+")


class OngoingTopicReassignment(Message):
    name: str = field(STRING, "0+")
    partitions: list[OngoingPartitionReassignment] = field([OngoingPartitionReassignment], "0+")


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = field([OngoingTopicReassignment], "0+")
