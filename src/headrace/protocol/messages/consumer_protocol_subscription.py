"""ConsumerProtocolSubscription. Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BYTES, INT32, STRING, Message, field


class TopicPartition(Message):
    topic: str = field(STRING, "1+")
    partitions: list[int] = field([INT32], "1+")


class ConsumerProtocolSubscription(Message, versions="0-3", flexible=""):
    topics: list[str] = field([STRING], "0+")
    user_data: bytes | None = field(BYTES, "0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field([TopicPartition], "1+")
    generation_id: int = field(INT32, "2+", default=-1)
    rack_id: str | None = field(STRING, "3+", nullable="3+", default=None)
