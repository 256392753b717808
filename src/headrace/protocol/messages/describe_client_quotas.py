"""DescribeClientQuotas (48). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Message, field


class ComponentData(Message):
    entity_type: str = field(STRING, "0+")
    match_type: int = field(INT8, "0+")
    match: str | None = field(STRING, "0+", nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = field([ComponentData], "0+")
    strict: bool = field(BOOL, "0+")


class EntityData(Message):
    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


class ValueData(Message):
    key: str = field(STRING, "0+")
    value: float = field(FLOAT64, "0+")


class EntryData(Message):
    entity: list[EntityData] = field([EntityData], "0+")
    values: list[ValueData] = field([ValueData], "0+")


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    entries: list[EntryData] | None = field([EntryData], "0+", nullable="0+")
