"""CreateTopics (19). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT8, INT16, INT32, STRING, UUID, Message, field


class CreatableReplicaAssignment(Message):
    partition_index: int = field(INT32, "2+")
    broker_ids: list[int] = field([INT32], "2+")


class CreatableTopicConfig(Message):
    name: str = field(STRING, "2+")
    value: str | None = field(STRING, "2+", nullable="2+")


class CreatableTopic(Message):
    name: str = field(STRING, "2+")
    num_partitions: int = field(INT32, "2+")
    replication_factor: int = field(INT16, "2+")
    assignments: list[CreatableReplicaAssignment] = field([CreatableReplicaAssignment], "2+")
    configs: list[CreatableTopicConfig] = field([CreatableTopicConfig], "2+")


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = field([CreatableTopic], "2+")
    timeout_ms: int = field(INT32, "2+", default=60000)
    validate_only: bool = field(BOOL, "2+")


class CreatableTopicConfigs(Message):
    name: str = field(STRING, "5+")
    value: str | None = field(STRING, "5+", nullable="5+")
    read_only: bool = field(BOOL, "5+")
    config_source: int = field(INT8, "5+", default=-1)
    is_sensitive: bool = field(BOOL, "5+")


class CreatableTopicResult(Message):
    name: str = field(STRING, "2+")
    topic_id: Uuid = field(UUID, "7+")
    error_code: int = field(INT16, "2+")
    error_message: str | None = field(STRING, "2+", nullable="2+")
    topic_config_error_code: int = field(INT16, "5+", tag=0)
    num_partitions: int = field(INT32, "5+", default=-1)
    replication_factor: int = field(INT16, "5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field([CreatableTopicConfigs], "5+", nullable="5+")


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int = field(INT32, "2+")
    topics: list[CreatableTopicResult] = field([CreatableTopicResult], "2+")
