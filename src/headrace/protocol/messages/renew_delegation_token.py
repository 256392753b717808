"""RenewDelegationToken (39). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BYTES, INT16, INT32, INT64, Message, field


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    hmac: bytes = field(BYTES, "1+")
    renew_period_ms: int = field(INT64, "1+")


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    error_code: int = field(INT16, "1+")
    expiry_timestamp_ms: int = field(INT64, "1+")
    throttle_time_ms: int = field(INT32, "1+")
