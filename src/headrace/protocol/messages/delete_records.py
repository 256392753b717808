"""DeleteRecords (21). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT16, INT32, INT64, STRING, Message, field


class DeleteRecordsPartition(Message):
    partition_index: int = field(INT32, "0+")
    offset: int = field(INT64, "0+")


class DeleteRecordsTopic(Message):
    name: str = field(STRING, "0+")
    partitions: list[DeleteRecordsPartition] = field([DeleteRecordsPartition], "0+")


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = field([DeleteRecordsTopic], "0+")
    timeout_ms: int = field(INT32, "0+")


class DeleteRecordsPartitionResult(Message):
    partition_index: int = field(INT32, "0+")
    low_watermark: int = field(INT64, "0+")
    error_code: int = field(INT16, "0+")


class DeleteRecordsTopicResult(Message):
    name: str = field(STRING, "0+")
    partitions: list[DeleteRecordsPartitionResult] = field([DeleteRecordsPartitionResult], "0+")


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+")
    topics: list[DeleteRecordsTopicResult] = field([DeleteRecordsTopicResult], "0+")
