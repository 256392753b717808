"""Parts of Fetch requests and responses that `Fetcher` and `RangeFetcher` share."""

from collections.abc import Iterable

from headrace.client.consumer.fetch_session_handler import RequestedPartition
from headrace.common.ids import ZERO_UUID
from headrace.common.types import TopicPartition
from headrace.protocol.messages.fetch import PartitionData
from headrace.records import FetchedRecords

__all__ = ["LAST_VERSION_WITH_NAMES", "to_fetched_records", "uses_topic_ids"]

_FIRST_VERSION_WITH_TOPIC_IDS = 13
LAST_VERSION_WITH_NAMES = 12


def uses_topic_ids(version: int | None, partitions: Iterable[RequestedPartition]) -> bool:
    """Returns True if a request of this version can name all topics by id."""
    return (
        version is not None
        and version >= _FIRST_VERSION_WITH_TOPIC_IDS
        and all(partition.topic_id != ZERO_UUID for partition in partitions)
    )


def to_fetched_records(
    tp: TopicPartition,
    data: PartitionData,
    fetch_offset: int,
    *,
    read_committed: bool,
    check_crcs: bool,
    max_inflated_bytes: int,
) -> FetchedRecords | None:
    """Returns the records of a partition's response, or None if there are none."""
    if not data.records:
        return None
    assert isinstance(data.records, bytes | bytearray | memoryview)
    aborted = None
    if read_committed and data.aborted_transactions:
        aborted = [(transaction.producer_id, transaction.first_offset) for transaction in data.aborted_transactions]
    return FetchedRecords(tp.topic, tp.partition, data.records, fetch_offset, aborted, check_crcs, max_inflated_bytes)
