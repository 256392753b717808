"""CreateAcls (30). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT8, INT16, INT32, STRING, Message, field


class AclCreation(Message):
    resource_type: int = field(INT8, "1+")
    resource_name: str = field(STRING, "1+")
    resource_pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING, "1+")
    host: str = field(STRING, "1+")
    operation: int = field(INT8, "1+")
    permission_type: int = field(INT8, "1+")


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = field([AclCreation], "1+")


class AclCreationResult(Message):
    error_code: int = field(INT16, "1+")
    error_message: str | None = field(STRING, "1+", nullable="1+")


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "1+")
    results: list[AclCreationResult] = field([AclCreationResult], "1+")
