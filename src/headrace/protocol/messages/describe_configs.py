"""DescribeConfigs (32). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT8, INT16, INT32, STRING, Message, field


class DescribeConfigsResource(Message):
    resource_type: int = field(INT8, "1+")
    resource_name: str = field(STRING, "1+")
    configuration_keys: list[str] | None = field([STRING], "1+", nullable="1+")


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = field([DescribeConfigsResource], "1+")
    include_synonyms: bool = field(BOOL, "1+")
    include_documentation: bool = field(BOOL, "3+")


class DescribeConfigsSynonym(Message):
    name: str = field(STRING, "1+")
    value: str | None = field(STRING, "1+", nullable="1+")
    source: int = field(INT8, "1+")


class DescribeConfigsResourceResult(Message):
    name: str = field(STRING, "1+")
    value: str | None = field(STRING, "1+", nullable="1+")
    read_only: bool = field(BOOL, "1+")
    config_source: int = field(INT8, "1+", default=-1)
    is_sensitive: bool = field(BOOL, "1+")
    synonyms: list[DescribeConfigsSynonym] = field([DescribeConfigsSynonym], "1+")
    config_type: int = field(INT8, "3+")
    documentation: str | None = field(STRING, "3+", nullable="3+")


class DescribeConfigsResult(Message):
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+")
    resource_type: int = field(INT8, "1+")
    resource_name: str = field(STRING, "1+")
    configs: list[DescribeConfigsResourceResult] = field([DescribeConfigsResourceResult], "1+")


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+")
    results: list[DescribeConfigsResult] = field([DescribeConfigsResult], "1+")
