"""AlterConfigs (33). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT8, INT16, INT32, STRING, Message, field


class AlterableConfig(Message):
    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")


class AlterConfigsResource(Message):
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    configs: list[AlterableConfig] = field([AlterableConfig], "0+")


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = field([AlterConfigsResource], "0+")
    validate_only: bool = field(BOOL, "0+")


class AlterConfigsResourceResponse(Message):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = field([AlterConfigsResourceResponse], "0+")
