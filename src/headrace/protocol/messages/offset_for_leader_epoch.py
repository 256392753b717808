"""OffsetForLeaderEpoch (23). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT16, INT32, INT64, STRING, Message, field


class OffsetForLeaderPartition(Message):
    partition: int = field(INT32, "2+")
    current_leader_epoch: int = field(INT32, "2+", default=-1)
    leader_epoch: int = field(INT32, "2+")


class OffsetForLeaderTopic(Message):
    topic: str = field(STRING, "2+")
    partitions: list[OffsetForLeaderPartition] = field([OffsetForLeaderPartition], "2+")


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+"):
    replica_id: int = field(INT32, "3+", default=-2)
    topics: list[OffsetForLeaderTopic] = field([OffsetForLeaderTopic], "2+")


class EpochEndOffset(Message):
    error_code: int = field(INT16, "2+")
    partition: int = field(INT32, "2+")
    leader_epoch: int = field(INT32, "2+", default=-1)
    end_offset: int = field(INT64, "2+", default=-1)


class OffsetForLeaderTopicResult(Message):
    topic: str = field(STRING, "2+")
    partitions: list[EpochEndOffset] = field([EpochEndOffset], "2+")


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, "2+")
    topics: list[OffsetForLeaderTopicResult] = field([OffsetForLeaderTopicResult], "2+")
