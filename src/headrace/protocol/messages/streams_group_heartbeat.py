"""StreamsGroupHeartbeat (88). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT8, INT16, INT32, INT64, STRING, UINT16, Message, field


class KeyValue(Message):
    key: str = field(STRING, "0+")
    value: str = field(STRING, "0+")


class TopicInfo(Message):
    name: str = field(STRING, "0+")
    partitions: int = field(INT32, "0+")
    replication_factor: int = field(INT16, "0+")
    topic_configs: list[KeyValue] = field([KeyValue], "0+")


class CopartitionGroup(Message):
    source_topics: list[int] = field([INT16], "0+")
    source_topic_regex: list[int] = field([INT16], "0+")
    repartition_source_topics: list[int] = field([INT16], "0+")


class Subtopology(Message):
    subtopology_id: str = field(STRING, "0+")
    source_topics: list[str] = field([STRING], "0+")
    source_topic_regex: list[str] = field([STRING], "0+")
    state_changelog_topics: list[TopicInfo] = field([TopicInfo], "0+")
    repartition_sink_topics: list[str] = field([STRING], "0+")
    repartition_source_topics: list[TopicInfo] = field([TopicInfo], "0+")
    copartition_groups: list[CopartitionGroup] = field([CopartitionGroup], "0+")


class Topology(Message):
    epoch: int = field(INT32, "0+")
    subtopologies: list[Subtopology] = field([Subtopology], "0+")


class TaskIds(Message):
    subtopology_id: str = field(STRING, "0+")
    partitions: list[int] = field([INT32], "0+")


class Endpoint(Message):
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class TaskOffset(Message):
    subtopology_id: str = field(STRING, "0+")
    partition: int = field(INT32, "0+")
    offset: int = field(INT64, "0+")


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions="0-0", flexible="0+"):
    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0+")
    member_epoch: int = field(INT32, "0+")
    endpoint_information_epoch: int = field(INT32, "0+")
    instance_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, "0+", default=-1)
    topology: Topology | None = field(Topology, "0+", nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = field([TaskIds], "0+", nullable="0+")
    standby_tasks: list[TaskIds] | None = field([TaskIds], "0+", nullable="0+")
    warmup_tasks: list[TaskIds] | None = field([TaskIds], "0+", nullable="0+")
    process_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    user_endpoint: Endpoint | None = field(Endpoint, "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] | None = field([KeyValue], "0+", nullable="0+")
    task_offsets: list[TaskOffset] | None = field([TaskOffset], "0+", nullable="0+")
    task_end_offsets: list[TaskOffset] | None = field([TaskOffset], "0+", nullable="0+")
    shutdown_application: bool = field(BOOL, "0+")


class Status(Message):
    status_code: int = field(INT8, "0+")
    status_detail: str = field(STRING, "0+")


class TopicPartition(Message):
    topic: str = field(STRING, "0+")
    partitions: list[int] = field([INT32], "0+")


class EndpointToPartitions(Message):
    user_endpoint: Endpoint = field(Endpoint, "0+")
    active_partitions: list[TopicPartition] = field([TopicPartition], "0+")
    standby_partitions: list[TopicPartition] = field([TopicPartition], "0+")


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    member_id: str = field(STRING, "0+")
    member_epoch: int = field(INT32, "0+")
    heartbeat_interval_ms: int = field(INT32, "0+")
    acceptable_recovery_lag: int = field(INT32, "0+")
    task_offset_interval_ms: int = field(INT32, "0+")
    status: list[Status] | None = field([Status], "0+", nullable="0+")
    active_tasks: list[TaskIds] | None = field([TaskIds], "0+", nullable="0+")
    standby_tasks: list[TaskIds] | None = field([TaskIds], "0+", nullable="0+")
    warmup_tasks: list[TaskIds] | None = field([TaskIds], "0+", nullable="0+")
    endpoint_information_epoch: int = field(INT32, "0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field([EndpointToPartitions], "0+", nullable="0+")
