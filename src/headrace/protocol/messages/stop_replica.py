"""StopReplica (5). Written by tools/generate_messages.py from Kafka 3.9.1's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT16, INT32, INT64, STRING, Message, field


class StopReplicaPartitionV0(Message):
    topic_name: str = field(STRING, "0")
    partition_index: int = field(INT32, "0")


class StopReplicaTopicV1(Message):
    name: str = field(STRING, "1-2")
    partition_indexes: list[int] = field([INT32], "1-2")


class StopReplicaPartitionState(Message):
    partition_index: int = field(INT32, "3+")
    leader_epoch: int = field(INT32, "3+", default=-1)
    delete_partition: bool = field(BOOL, "3+")


class StopReplicaTopicState(Message):
    topic_name: str = field(STRING, "3+")
    partition_states: list[StopReplicaPartitionState] = field([StopReplicaPartitionState], "3+")


class StopReplicaRequest(Message, api_key=5, versions="0-4", flexible="2+"):
    controller_id: int = field(INT32, "0+")
    is_kraft_controller: bool = field(BOOL, "4+")
    controller_epoch: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "1+", default=-1)
    delete_partitions: bool = field(BOOL, "0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = field([StopReplicaPartitionV0], "0")
    topics: list[StopReplicaTopicV1] = field([StopReplicaTopicV1], "1-2")
    topic_states: list[StopReplicaTopicState] = field([StopReplicaTopicState], "3+")


class StopReplicaPartitionError(Message):
    topic_name: str = field(STRING, "0+")
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class StopReplicaResponse(Message, api_key=5, versions="0-4", flexible="2+"):
    error_code: int = field(INT16, "0+")
    partition_errors: list[StopReplicaPartitionError] = field([StopReplicaPartitionError], "0+")
