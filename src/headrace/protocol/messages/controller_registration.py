"""ControllerRegistration (70). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT16, INT32, STRING, UINT16, UUID, Message, field


class Listener(Message):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")
    security_protocol: int = field(INT16, "0+")


class Feature(Message):
    name: str = field(STRING, "0+")
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class ControllerRegistrationRequest(Message, api_key=70, versions="0-0", flexible="0+"):
    controller_id: int = field(INT32, "0+")
    incarnation_id: Uuid = field(UUID, "0+")
    zk_migration_ready: bool = field(BOOL, "0+")
    listeners: list[Listener] = field([Listener], "0+")
    features: list[Feature] = field([Feature], "0+")


class ControllerRegistrationResponse(Message, api_key=70, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
