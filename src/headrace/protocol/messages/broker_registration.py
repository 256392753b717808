"""BrokerRegistration (62). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT16, INT32, INT64, STRING, UINT16, UUID, Message, field


class Listener(Message):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")
    security_protocol: int = field(INT16, "0+")


class Feature(Message):
    name: str = field(STRING, "0+")
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class BrokerRegistrationRequest(Message, api_key=62, versions="0-4", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    cluster_id: str = field(STRING, "0+")
    incarnation_id: Uuid = field(UUID, "0+")
    listeners: list[Listener] = field([Listener], "0+")
    features: list[Feature] = field([Feature], "0+")
    rack: str | None = field(STRING, "0+", nullable="0+")
    is_migrating_zk_broker: bool = field(BOOL, "1+")
    log_dirs: list[Uuid] = field([UUID], "2+")
    previous_broker_epoch: int = field(INT64, "3+", default=-1)


class BrokerRegistrationResponse(Message, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
