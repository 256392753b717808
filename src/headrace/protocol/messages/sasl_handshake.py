"""SaslHandshake (17). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT16, STRING, Message, field


class SaslHandshakeRequest(Message, api_key=17, versions="0-1", flexible=""):
    mechanism: str = field(STRING, "0+")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1", flexible=""):
    error_code: int = field(INT16, "0+")
    mechanisms: list[str] = field([STRING], "0+")
