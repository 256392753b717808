"""DeleteAcls (31). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT8, INT16, INT32, STRING, Message, field


class DeleteAclsFilter(Message):
    resource_type_filter: int = field(INT8, "1+")
    resource_name_filter: str | None = field(STRING, "1+", nullable="1+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, "1+", nullable="1+")
    host_filter: str | None = field(STRING, "1+", nullable="1+")
    operation: int = field(INT8, "1+")
    permission_type: int = field(INT8, "1+")


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field([DeleteAclsFilter], "1+")


class DeleteAclsMatchingAcl(Message):
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+")
    resource_type: int = field(INT8, "1+")
    resource_name: str = field(STRING, "1+")
    pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING, "1+")
    host: str = field(STRING, "1+")
    operation: int = field(INT8, "1+")
    permission_type: int = field(INT8, "1+")


class DeleteAclsFilterResult(Message):
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+")
    matching_acls: list[DeleteAclsMatchingAcl] = field([DeleteAclsMatchingAcl], "1+")


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "1+")
    filter_results: list[DeleteAclsFilterResult] = field([DeleteAclsFilterResult], "1+")
