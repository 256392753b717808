"""Envelope (58). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BYTES, INT16, Message, field


class EnvelopeRequest(Message, api_key=58, versions="0-0", flexible="0+"):
    request_data: bytes = field(BYTES, "0+")
    request_principal: bytes | None = field(BYTES, "0+", nullable="0+")
    client_host_address: bytes = field(BYTES, "0+")


class EnvelopeResponse(Message, api_key=58, versions="0-0", flexible="0+"):
    response_data: bytes | None = field(BYTES, "0+", nullable="0+", default=None)
    error_code: int = field(INT16, "0+")
