"""DescribeLogDirs (35). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT16, INT32, INT64, STRING, Message, field


class DescribableLogDirTopic(Message):
    topic: str = field(STRING, "1+")
    partitions: list[int] = field([INT32], "1+")


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field([DescribableLogDirTopic], "1+", nullable="1+")


class DescribeLogDirsPartition(Message):
    partition_index: int = field(INT32, "1+")
    partition_size: int = field(INT64, "1+")
    offset_lag: int = field(INT64, "1+")
    is_future_key: bool = field(BOOL, "1+")


class DescribeLogDirsTopic(Message):
    name: str = field(STRING, "1+")
    partitions: list[DescribeLogDirsPartition] = field([DescribeLogDirsPartition], "1+")


class DescribeLogDirsResult(Message):
    error_code: int = field(INT16, "1+")
    log_dir: str = field(STRING, "1+")
    topics: list[DescribeLogDirsTopic] = field([DescribeLogDirsTopic], "1+")
    total_bytes: int = field(INT64, "4+", default=-1)
    usable_bytes: int = field(INT64, "4+", default=-1)
    is_cordoned: bool = field(BOOL, "5+")


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = field(INT32, "1+")
    error_code: int = field(INT16, "3+")
    results: list[DescribeLogDirsResult] = field([DescribeLogDirsResult], "1+")
