"""AlterClientQuotas (49). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, FLOAT64, INT16, INT32, STRING, Message, field


class EntityData(Message):
    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


class OpData(Message):
    key: str = field(STRING, "0+")
    value: float = field(FLOAT64, "0+")
    remove: bool = field(BOOL, "0+")


class EntryDataRequest(Message):
    entity: list[EntityData] = field([EntityData], "0+")
    ops: list[OpData] = field([OpData], "0+")


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[EntryDataRequest] = field([EntryDataRequest], "0+")
    validate_only: bool = field(BOOL, "0+")


class EntryDataResponse(Message):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    entity: list[EntityData] = field([EntityData], "0+")


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, "0+")
    entries: list[EntryDataResponse] = field([EntryDataResponse], "0+")
