"""AlterReplicaLogDirs (34). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT16, INT32, STRING, Message, field


class AlterReplicaLogDirTopic(Message):
    name: str = field(STRING, "1+")
    partitions: list[int] = field([INT32], "1+")


class AlterReplicaLogDir(Message):
    path: str = field(STRING, "1+")
    topics: list[AlterReplicaLogDirTopic] = field([AlterReplicaLogDirTopic], "1+")


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = field([AlterReplicaLogDir], "1+")


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: int = field(INT32, "1+")
    error_code: int = field(INT16, "1+")


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str = field(STRING, "1+")
    partitions: list[AlterReplicaLogDirPartitionResult] = field([AlterReplicaLogDirPartitionResult], "1+")


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, "1+")
    results: list[AlterReplicaLogDirTopicResult] = field([AlterReplicaLogDirTopicResult], "1+")
