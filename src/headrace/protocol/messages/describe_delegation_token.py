"""DescribeDelegationToken (41). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BYTES, INT16, INT32, INT64, STRING, Message, field


class DescribeDelegationTokenOwner(Message):
    principal_type: str = field(STRING, "1+")
    principal_name: str = field(STRING, "1+")


class DescribeDelegationTokenRequest(Message, api_key=41, versions="1-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = field([DescribeDelegationTokenOwner], "1+", nullable="1+")


class DescribedDelegationTokenRenewer(Message):
    principal_type: str = field(STRING, "1+")
    principal_name: str = field(STRING, "1+")


class DescribedDelegationToken(Message):
    principal_type: str = field(STRING, "1+")
    principal_name: str = field(STRING, "1+")
    token_requester_principal_type: str = field(STRING, "3+")
    token_requester_principal_name: str = field(STRING, "3+")
    issue_timestamp: int = field(INT64, "1+")
    expiry_timestamp: int = field(INT64, "1+")
    max_timestamp: int = field(INT64, "1+")
    token_id: str = field(STRING, "1+")
    hmac: bytes = field(BYTES, "1+")
    renewers: list[DescribedDelegationTokenRenewer] = field([DescribedDelegationTokenRenewer], "1+")


class DescribeDelegationTokenResponse(Message, api_key=41, versions="1-3", flexible="2+"):
    error_code: int = field(INT16, "1+")
    tokens: list[DescribedDelegationToken] = field([DescribedDelegationToken], "1+")
    throttle_time_ms: int = field(INT32, "1+")
