"""DeleteShareGroupOffsets (92). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import INT16, INT32, STRING, UUID, Message, field


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str = field(STRING, "0+")


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions="0-0", flexible="0+"):
    group_id: str = field(STRING, "0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field([DeleteShareGroupOffsetsRequestTopic], "0+")


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str = field(STRING, "0+")
    topic_id: Uuid = field(UUID, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field([DeleteShareGroupOffsetsResponseTopic], "0+")
