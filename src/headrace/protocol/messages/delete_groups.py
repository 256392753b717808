"""DeleteGroups (42). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT16, INT32, STRING, Message, field


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = field([STRING], "0+")


class DeletableGroupResult(Message):
    group_id: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    results: list[DeletableGroupResult] = field([DeletableGroupResult], "0+")
