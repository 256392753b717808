"""AddPartitionsToTxn (24). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT16, INT32, INT64, STRING, Message, field


class AddPartitionsToTxnTopic(Message):
    name: str = field(STRING, "0+")
    partitions: list[int] = field([INT32], "0+")


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = field(STRING, "4+")
    producer_id: int = field(INT64, "4+")
    producer_epoch: int = field(INT16, "4+")
    verify_only: bool = field(BOOL, "4+")
    topics: list[AddPartitionsToTxnTopic] = field([AddPartitionsToTxnTopic], "4+")


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    v3_and_below_transactional_id: str = field(STRING, "0-3")
    v3_and_below_producer_id: int = field(INT64, "0-3")
    v3_and_below_producer_epoch: int = field(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field([AddPartitionsToTxnTopic], "0-3")
    transactions: list[AddPartitionsToTxnTransaction] = field([AddPartitionsToTxnTransaction], "4+")


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = field(INT32, "0+")
    partition_error_code: int = field(INT16, "0+")


class AddPartitionsToTxnTopicResult(Message):
    name: str = field(STRING, "0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field([AddPartitionsToTxnPartitionResult], "0+")


class AddPartitionsToTxnResult(Message):
    transactional_id: str = field(STRING, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field([AddPartitionsToTxnTopicResult], "4+")


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32, "0+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field([AddPartitionsToTxnTopicResult], "0-3")
    error_code: int = field(INT16, "4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = field([AddPartitionsToTxnResult], "4+")
