"""DescribeAcls (29). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT8, INT16, INT32, STRING, Message, field


class DescribeAclsRequest(Message, api_key=29, versions="1-3", flexible="2+"):
    resource_type_filter: int = field(INT8, "1+")
    resource_name_filter: str | None = field(STRING, "1+", nullable="1+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, "1+", nullable="1+")
    host_filter: str | None = field(STRING, "1+", nullable="1+")
    operation: int = field(INT8, "1+")
    permission_type: int = field(INT8, "1+")


class AclDescription(Message):
    principal: str = field(STRING, "1+")
    host: str = field(STRING, "1+")
    operation: int = field(INT8, "1+")
    permission_type: int = field(INT8, "1+")


class DescribeAclsResource(Message):
    resource_type: int = field(INT8, "1+")
    resource_name: str = field(STRING, "1+")
    pattern_type: int = field(INT8, "1+", default=3)
    acls: list[AclDescription] = field([AclDescription], "1+")


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "1+")
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+")
    resources: list[DescribeAclsResource] = field([DescribeAclsResource], "1+")
