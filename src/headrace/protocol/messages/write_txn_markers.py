"""WriteTxnMarkers (27). Written by tools/generate_messages.py from kio's schemas; do not edit."""

from __future__ import annotations

from headrace.protocol.message import BOOL, INT8, INT16, INT32, INT64, STRING, Message, field


class WritableTxnMarkerTopic(Message):
    name: str = field(STRING, "1+")
    partition_indexes: list[int] = field([INT32], "1+")


class WritableTxnMarker(Message):
    producer_id: int = field(INT64, "1+")
    producer_epoch: int = field(INT16, "1+")
    transaction_result: bool = field(BOOL, "1+")
    topics: list[WritableTxnMarkerTopic] = field([WritableTxnMarkerTopic], "1+")
    coordinator_epoch: int = field(INT32, "1+")
    transaction_version: int = field(INT8, "2+")


class WriteTxnMarkersRequest(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = field([WritableTxnMarker], "1+")


class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = field(INT32, "1+")
    error_code: int = field(INT16, "1+")


class WritableTxnMarkerTopicResult(Message):
    name: str = field(STRING, "1+")
    partitions: list[WritableTxnMarkerPartitionResult] = field([WritableTxnMarkerPartitionResult], "1+")


class WritableTxnMarkerResult(Message):
    producer_id: int = field(INT64, "1+")
    topics: list[WritableTxnMarkerTopicResult] = field([WritableTxnMarkerTopicResult], "1+")


class WriteTxnMarkersResponse(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field([WritableTxnMarkerResult], "1+")
