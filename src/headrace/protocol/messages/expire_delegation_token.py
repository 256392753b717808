"""ExpireDelegationToken (40). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BYTES, INT16, INT32, INT64, Message, field


class ExpireDelegationTokenRequest(Message, api_key=40, versions="1-2", flexible="2+"):
    hmac: bytes = field(BYTES, "1+")
    expiry_time_period_ms: int = field(INT64, "1+")


class ExpireDelegationTokenResponse(Message, api_key=40, versions="1-2", flexible="2+"):
    error_code: int = field(INT16, "1+")
    expiry_timestamp_ms: int = field(INT64, "1+")
    throttle_time_ms: int = field(INT32, "1+")
