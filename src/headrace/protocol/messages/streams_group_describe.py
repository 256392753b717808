"""StreamsGroupDescribe (89). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT16, INT32, INT64, STRING, UINT16, Message, field


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0-0", flexible="0+"):
    group_ids: list[str] = field([STRING], "0+")
    include_authorized_operations: bool = field(BOOL, "0+")


class KeyValue(Message):
    key: str = field(STRING, "0+")
    value: str = field(STRING, "0+")


class TopicInfo(Message):
    name: str = field(STRING, "0+")
    partitions: int = field(INT32, "0+")
    replication_factor: int = field(INT16, "0+")
    topic_configs: list[KeyValue] = field([KeyValue], "0+")


class Subtopology(Message):
    subtopology_id: str = field(STRING, "0+")
    source_topics: list[str] = field([STRING], "0+")
    repartition_sink_topics: list[str] = field([STRING], "0+")
    state_changelog_topics: list[TopicInfo] = field([TopicInfo], "0+")
    repartition_source_topics: list[TopicInfo] = field([TopicInfo], "0+")


class Topology(Message):
    epoch: int = field(INT32, "0+")
    subtopologies: list[Subtopology] | None = field([Subtopology], "0+", nullable="0+")


class Endpoint(Message):
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class TaskOffset(Message):
    subtopology_id: str = field(STRING, "0+")
    partition: int = field(INT32, "0+")
    offset: int = field(INT64, "0+")


class TaskIds(Message):
    subtopology_id: str = field(STRING, "0+")
    partitions: list[int] = field([INT32], "0+")


class Assignment(Message):
    active_tasks: list[TaskIds] = field([TaskIds], "0+")
    standby_tasks: list[TaskIds] = field([TaskIds], "0+")
    warmup_tasks: list[TaskIds] = field([TaskIds], "0+")


class Member(Message):
    member_id: str = field(STRING, "0+")
    member_epoch: int = field(INT32, "0+")
    instance_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    topology_epoch: int = field(INT32, "0+")
    process_id: str = field(STRING, "0+")
    user_endpoint: Endpoint | None = field(Endpoint, "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] = field([KeyValue], "0+")
    task_offsets: list[TaskOffset] = field([TaskOffset], "0+")
    task_end_offsets: list[TaskOffset] = field([TaskOffset], "0+")
    assignment: Assignment = field(Assignment, "0+")
    target_assignment: Assignment = field(Assignment, "0+")
    is_classic: bool = field(BOOL, "0+")


class DescribedGroup(Message):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    group_id: str = field(STRING, "0+")
    group_state: str = field(STRING, "0+")
    group_epoch: int = field(INT32, "0+")
    assignment_epoch: int = field(INT32, "0+")
    topology: Topology | None = field(Topology, "0+", nullable="0+", default=None)
    members: list[Member] = field([Member], "0+")
    authorized_operations: int = field(INT32, "0+", default=-2147483648)


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    groups: list[DescribedGroup] = field([DescribedGroup], "0+")
