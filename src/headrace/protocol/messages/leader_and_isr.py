"""LeaderAndIsr (4). Written by tools/generate_messages.py from Kafka 3.9.1's schemas; do not edit."""

from __future__ import annotations

from headrace.common.ids import Uuid
from headrace.protocol.message import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, Message, field


class LeaderAndIsrPartitionState(Message):
    topic_name: str = field(STRING, "0-1")
    partition_index: int = field(INT32, "0+")
    controller_epoch: int = field(INT32, "0+")
    leader: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    isr: list[int] = field([INT32], "0+")
    partition_epoch: int = field(INT32, "0+")
    replicas: list[int] = field([INT32], "0+")
    adding_replicas: list[int] = field([INT32], "3+")
    removing_replicas: list[int] = field([INT32], "3+")
    is_new: bool = field(BOOL, "1+")
    leader_recovery_state: int = field(INT8, "6+")


class LeaderAndIsrTopicState(Message):
    topic_name: str = field(STRING, "2+")
    topic_id: Uuid = field(UUID, "5+")
    partition_states: list[LeaderAndIsrPartitionState] = field([LeaderAndIsrPartitionState], "2+")


class LeaderAndIsrLiveLeader(Message):
    broker_id: int = field(INT32, "0+")
    host_name: str = field(STRING, "0+")
    port: int = field(INT32, "0+")


class LeaderAndIsrRequest(Message, api_key=4, versions="0-7", flexible="4+"):
    controller_id: int = field(INT32, "0+")
    is_kraft_controller: bool = field(BOOL, "7+")
    controller_epoch: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "2+", default=-1)
    type: int = field(INT8, "5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field([LeaderAndIsrPartitionState], "0-1")
    topic_states: list[LeaderAndIsrTopicState] = field([LeaderAndIsrTopicState], "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = field([LeaderAndIsrLiveLeader], "0+")


class LeaderAndIsrPartitionError(Message):
    topic_name: str = field(STRING, "0-4")
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class LeaderAndIsrTopicError(Message):
    topic_id: Uuid = field(UUID, "5+")
    partition_errors: list[LeaderAndIsrPartitionError] = field([LeaderAndIsrPartitionError], "5+")


class LeaderAndIsrResponse(Message, api_key=4, versions="0-7", flexible="4+"):
    error_code: int = field(INT16, "0+")
    partition_errors: list[LeaderAndIsrPartitionError] = field([LeaderAndIsrPartitionError], "0-4")
    topics: list[LeaderAndIsrTopicError] = field([LeaderAndIsrTopicError], "5+")
