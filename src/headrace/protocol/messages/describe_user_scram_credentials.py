"""DescribeUserScramCredentials (50). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT8, INT16, INT32, STRING, Message, field


class UserName(Message):
    name: str = field(STRING, "0+")


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0-0", flexible="0+"):
    users: list[UserName] | None = field([UserName], "0+", nullable="0+")


class CredentialInfo(Message):
    mechanism: int = field(INT8, "0+")
    iterations: int = field(INT32, "0+")


class DescribeUserScramCredentialsResult(Message):
    user: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    credential_infos: list[CredentialInfo] = field([CredentialInfo], "0+")


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field([DescribeUserScramCredentialsResult], "0+")
