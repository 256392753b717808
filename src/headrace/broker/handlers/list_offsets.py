"""ListOffsets: the offset for a timestamp.

Behavior:

    timestamp -1   latest: the high watermark, with read_committed the last stable offset
    timestamp -2   earliest: the log start offset
    timestamp -3   the first record that has the maximum timestamp
    timestamp -4   the earliest local offset: the log start offset, as there is no tiered storage
    timestamp -5   the latest tiered offset: none, offset -1
    timestamp -6   the earliest offset pending upload to tiered storage: none, offset -1
    any other      the first record with that timestamp or a later one; offset -1 if there is none

A partition that the request names twice gets INVALID_REQUEST.

Version notes (1 to 11):
- 2 has the isolation level (KIP-98)
- 4 has leader epochs (KIP-320)
- 6 is flexible
- 7 has timestamp -3 (KIP-734)
- 8 has timestamp -4 (KIP-405)
- 9 has timestamp -5 (KIP-1005)
- 10 has a timeout (KIP-1075)
- 11 has timestamp -6 (KIP-1023)
"""

import logging
from collections import Counter
from typing import NamedTuple

from headrace.broker.dispatch import HandlerResult, RequestContext, api
from headrace.broker.fetching import fetch_isolation
from headrace.broker.replica_manager import ReplicaManager
from headrace.common.errors import InvalidRequestError, KafkaError, UnsupportedVersionError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.storage.log import FetchIsolation

_logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_FIRST_VERSION_WITH = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class FoundOffset(NamedTuple):
    """An offset and the timestamp of its record, -1 if unknown."""

    offset: int
    timestamp: int = -1


@api(ApiKey.LIST_OFFSETS, 1, 11)
def handle(request: ListOffsetsRequest, context: RequestContext, *, replicas: ReplicaManager) -> HandlerResult:
    isolation = fetch_isolation(request.replica_id, request.isolation_level)
    duplicates = _duplicates(request)
    topics: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        responses: list[ListOffsetsPartitionResponse] = []
        for requested in topic.partitions:
            try:
                if (topic.name, requested.partition_index) in duplicates:
                    raise InvalidRequestError(
                        f"The request names partition {topic.name}-{requested.partition_index} more than once"
                    )
                response = _find_offset(replicas, topic.name, requested, isolation, context.api_version)
            except KafkaError as error:
                response = _error_response(requested, error.code)
            except Exception:
                _logger.exception("Partition %s-%d: an offset lookup failed", topic.name, requested.partition_index)
                response = _error_response(requested, KafkaError.code)
            responses.append(response)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=responses))
    return ListOffsetsResponse(topics=topics)


def _duplicates(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    counts = Counter(
        (topic.name, requested.partition_index) for topic in request.topics for requested in topic.partitions
    )
    return {key for key, count in counts.items() if count > 1}


def _error_response(requested: ListOffsetsPartition, code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index, error_code=code, timestamp=-1, offset=-1
    )


def _find_offset(
    replicas: ReplicaManager, topic: str, requested: ListOffsetsPartition, isolation: FetchIsolation, version: int
) -> ListOffsetsPartitionResponse:
    timestamp = requested.timestamp
    if version < _FIRST_VERSION_WITH.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        raise UnsupportedVersionError(f"ListOffsets version {version} does not support timestamp {timestamp}")
    partition = replicas.find(topic, requested.partition_index)
    log = partition.check_leader(requested.current_leader_epoch)
    end_offset = log.readable_end(isolation)
    if timestamp == LATEST:
        result = FoundOffset(end_offset)
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        result = FoundOffset(log.log_start_offset)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        result = FoundOffset(-1)
    else:
        position = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.find_timestamp(timestamp)
        result = (
            FoundOffset(position[1], position[0])
            if position is not None and position[1] < end_offset
            else FoundOffset(-1)
        )
    epoch = log.epochs.epoch_for_offset(result.offset) if result.offset >= 0 else None
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        timestamp=result.timestamp,
        offset=result.offset,
        leader_epoch=epoch if epoch is not None else -1,
    )
