"""ShareGroupHeartbeat (76). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, STRING, UUID, Message, field


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1-1", flexible="1+"):
    group_id: str = field(STRING, "1+")
    member_id: str = field(STRING, "1+")
    member_epoch: int = field(INT32, "1+")
    rack_id: str | None = field(STRING, "1+", nullable="1+", default=None)
    subscribed_topic_names: list[str] | None = field([STRING], "1+", nullable="1+", default=None)


class TopicPartitions(Message):
    topic_id: Uuid = field(UUID, "1+")
    partitions: list[int] = field([INT32], "1+")


class Assignment(Message):
    topic_partitions: list[TopicPartitions] = field([TopicPartitions], "1+")


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, "1+")
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+", default=None)
    member_id: str | None = field(STRING, "1+", nullable="1+", default=None)
    member_epoch: int = field(INT32, "1+")
    heartbeat_interval_ms: int = field(INT32, "1+")
    assignment: Assignment | None = field(Assignment, "1+", nullable="1+", default=None)
