"""AlterUserScramCredentials (51). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BYTES, INT8, INT16, INT32, STRING, Message, field


class ScramCredentialDeletion(Message):
    name: str = field(STRING, "0+")
    mechanism: int = field(INT8, "0+")


class ScramCredentialUpsertion(Message):
    name: str = field(STRING, "0+")
    mechanism: int = field(INT8, "0+")
    iterations: int = field(INT32, "0+")
    salt: bytes = field(BYTES, "0+")
    salted_password: bytes = field(BYTES, "0+")


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0-0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field([ScramCredentialDeletion], "0+")
    upsertions: list[ScramCredentialUpsertion] = field([ScramCredentialUpsertion], "0+")


class AlterUserScramCredentialsResult(Message):
    user: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    results: list[AlterUserScramCredentialsResult] = field([AlterUserScramCredentialsResult], "0+")
