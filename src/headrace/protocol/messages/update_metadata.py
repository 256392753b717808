"""UpdateMetadata (6). Written by tools/generate_messages.py from Kafka 3.9.1's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, Message, field


class UpdateMetadataPartitionState(Message):
    topic_name: str = field(STRING, "0-4")
    partition_index: int = field(INT32, "0+")
    controller_epoch: int = field(INT32, "0+")
    leader: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    isr: list[int] = field([INT32], "0+")
    zk_version: int = field(INT32, "0+")
    replicas: list[int] = field([INT32], "0+")
    offline_replicas: list[int] = field([INT32], "4+")


class UpdateMetadataTopicState(Message):
    topic_name: str = field(STRING, "5+")
    topic_id: Uuid = field(UUID, "7+")
    partition_states: list[UpdateMetadataPartitionState] = field([UpdateMetadataPartitionState], "5+")


class UpdateMetadataEndpoint(Message):
    port: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    listener: str = field(STRING, "3+")
    security_protocol: int = field(INT16, "1+")


class UpdateMetadataBroker(Message):
    id: int = field(INT32, "0+")
    v0_host: str = field(STRING, "0")
    v0_port: int = field(INT32, "0")
    endpoints: list[UpdateMetadataEndpoint] = field([UpdateMetadataEndpoint], "1+")
    rack: str | None = field(STRING, "2+", nullable="2+")


class UpdateMetadataRequest(Message, api_key=6, versions="0-8", flexible="6+"):
    controller_id: int = field(INT32, "0+")
    is_kraft_controller: bool = field(BOOL, "8+")
    type: int = field(INT8, "8+", tag=0)
    controller_epoch: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "5+", default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field([UpdateMetadataPartitionState], "0-4")
    topic_states: list[UpdateMetadataTopicState] = field([UpdateMetadataTopicState], "5+")
    live_brokers: list[UpdateMetadataBroker] = field([UpdateMetadataBroker], "0+")


class UpdateMetadataResponse(Message, api_key=6, versions="0-8", flexible="6+"):
    error_code: int = field(INT16, "0+")
