"""CreateDelegationToken (38). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BYTES, INT16, INT32, INT64, STRING, Message, field


class CreatableRenewers(Message):
    principal_type: str = field(STRING, "1+")
    principal_name: str = field(STRING, "1+")


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    owner_principal_type: str | None = field(STRING, "3+", nullable="3+")
    owner_principal_name: str | None = field(STRING, "3+", nullable="3+")
    renewers: list[CreatableRenewers] = field([CreatableRenewers], "1+")
    max_lifetime_ms: int = field(INT64, "1+")


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    error_code: int = field(INT16, "1+")
    principal_type: str = field(STRING, "1+")
    principal_name: str = field(STRING, "1+")
    token_requester_principal_type: str = field(STRING, "3+")
    token_requester_principal_name: str = field(STRING, "3+")
    issue_timestamp_ms: int = field(INT64, "1+")
    expiry_timestamp_ms: int = field(INT64, "1+")
    max_timestamp_ms: int = field(INT64, "1+")
    token_id: str = field(STRING, "1+")
    hmac: bytes = field(BYTES, "1+")
    throttle_time_ms: int = field(INT32, "1+")
