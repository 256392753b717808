"""DeleteTopics (20). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, STRING, UUID, Message, field


class DeleteTopicState(Message):
    name: str | None = field(STRING, "6+", nullable="6+", default=None)
    topic_id: Uuid = field(UUID, "6+")


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topic_names: list[str] = field([STRING], "1-5")
    topics: list[DeleteTopicState] = field([DeleteTopicState], "6+")
    timeout_ms: int = field(INT32, "1+")


class DeletableTopicResult(Message):
    name: str | None = field(STRING, "1+", nullable="6+")
    topic_id: Uuid = field(UUID, "6+")
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "5+", nullable="5+", default=None)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+")
    responses: list[DeletableTopicResult] = field([DeletableTopicResult], "1+")
