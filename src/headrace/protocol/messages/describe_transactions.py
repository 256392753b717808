"""DescribeTransactions (65). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import INT16, INT32, INT64, STRING, Message, field


class DescribeTransactionsRequest(Message, api_key=65, versions="0-0", flexible="0+"):
    transactional_ids: list[str] = field([STRING], "0+")


class TopicData(Message):
    topic: str = field(STRING, "0+")
    partitions: list[int] = field([INT32], "0+")


class TransactionState(Message):
    error_code: int = field(INT16, "0+")
    transactional_id: str = field(STRING, "0+")
    transaction_state: str = field(STRING, "0+")
    transaction_timeout_ms: int = field(INT32, "0+")
    transaction_start_time_ms: int = field(INT64, "0+")
    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT16, "0+")
    topics: list[TopicData] = field([TopicData], "0+")


class DescribeTransactionsResponse(Message, api_key=65, versions="0-0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+")
    transaction_states: list[TransactionState] = field([TransactionState], "0+")
