"""ListConfigResources (74). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT8, INT16, INT32, STRING, Message, field


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = field([INT8], "1+")


class ConfigResource(Message):
    resource_name: str = field(STRING, "0+")
    resource_type: int = field(INT8, "1+", default=16)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    config_resources: list[ConfigResource] = field([ConfigResource], "0+")
