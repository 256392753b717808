"""ShareGroupDescribe (77). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT16, INT32, STRING, UUID, Message, field


class ShareGroupDescribeRequest(Message, api_key=77, versions="1-1", flexible="1+"):
    group_ids: list[str] = field([STRING], "1+")
    include_authorized_operations: bool = field(BOOL, "1+")


class TopicPartitions(Message):
    topic_id: Uuid = field(UUID, "1+")
    topic_name: str = field(STRING, "1+")
    partitions: list[int] = field([INT32], "1+")


class Assignment(Message):
    topic_partitions: list[TopicPartitions] = field([TopicPartitions], "1+")


class Member(Message):
    member_id: str = field(STRING, "1+")
    rack_id: str | None = field(STRING, "1+", nullable="1+", default=None)
    member_epoch: int = field(INT32, "1+")
    client_id: str = field(STRING, "1+")
    client_host: str = field(STRING, "1+")
    subscribed_topic_names: list[str] = field([STRING], "1+")
    assignment: Assignment = field(Assignment, "1+")


class DescribedGroup(Message):
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+", default=None)
    group_id: str = field(STRING, "1+")
    group_state: str = field(STRING, "1+")
    group_epoch: int = field(INT32, "1+")
    assignment_epoch: int = field(INT32, "1+")
    assignor_name: str = field(STRING, "1+")
    members: list[Member] = field([Member], "1+")
    authorized_operations: int = field(INT32, "1+", default=-2147483648)


class ShareGroupDescribeResponse(Message, api_key=77, versions="1-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, "1+")
    groups: list[DescribedGroup] = field([DescribedGroup], "1+")
