"""ConsumerProtocolAssignment. Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BYTES, INT32, STRING, Message, field


class TopicPartition(Message):
    topic: str = field(STRING, "0+")
    partitions: list[int] = field([INT32], "0+")


class ConsumerProtocolAssignment(Message, versions="0-3", flexible=""):
    assigned_partitions: list[TopicPartition] = field([TopicPartition], "0+")
    user_data: bytes | None = field(BYTES, "0+", nullable="0+", default=None)
