"""ListOffsets: the offset that belongs to a time.

Versions 1 to 11: 2 isolation level (KIP-98), 4 leader epochs (KIP-320), 6 flexible, 7 the newest timestamp (KIP-734), 8
the start of what is kept here (KIP-405), 9 the end of what is kept elsewhere (KIP-1005), 10 a timeout (KIP-1075), 11
what is not yet kept elsewhere (KIP-1023).

    timestamp -1   latest: the high watermark, with read_committed the last stable offset
    timestamp -2   earliest: the log's start
    timestamp -3   the first record that has the newest timestamp
    timestamp -4   the earliest kept on this broker: the log's start, as nothing is kept elsewhere
    timestamp -5   the latest kept elsewhere: none, offset -1
    timestamp -6   the earliest not yet kept elsewhere: none, offset -1
    any other      the first record that is not older; offset -1 if all are

A partition that comes twice in a request is refused.
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


class Found(NamedTuple):
    offset: int
    timestamp: int = -1


@api(ApiKey.LIST_OFFSETS, 1, 11)
def handle(request: ListOffsetsRequest, context: RequestContext, *, replicas: ReplicaManager) -> HandlerResult:
    isolation = fetch_isolation(request.replica_id, request.isolation_level)
    twice = _asked_for_twice(request)
    topics: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        replies: list[ListOffsetsPartitionResponse] = []
        for asked in topic.partitions:
            try:
                if (topic.name, asked.partition_index) in twice:
                    raise InvalidRequestError(f"partition {asked.partition_index} of {topic.name} is asked for twice")
                reply = _answer(replicas, topic.name, asked, isolation, context.api_version)
            except KafkaError as error:
                reply = _refusal(asked, error.code)
            except Exception:
                _logger.exception("a search in %s-%d failed", topic.name, asked.partition_index)
                reply = _refusal(asked, KafkaError.code)
            replies.append(reply)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=replies))
    return ListOffsetsResponse(topics=topics)


def _asked_for_twice(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    times = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    return {key for key, count in times.items() if count > 1}


def _refusal(asked: ListOffsetsPartition, code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code, timestamp=-1, offset=-1)


def _answer(
    replicas: ReplicaManager, topic: str, asked: ListOffsetsPartition, isolation: FetchIsolation, version: int
) -> ListOffsetsPartitionResponse:
    timestamp = asked.timestamp
    needed = _FIRST_VERSION_WITH.get(timestamp, 0)
    if version < needed or timestamp < EARLIEST_PENDING_UPLOAD:
        raise UnsupportedVersionError(f"timestamp {timestamp} needs another version of ListOffsets than {version}")
    partition = replicas.find(topic, asked.partition_index)
    log = partition.check_leader(asked.current_leader_epoch)
    end = log.readable_end(isolation)
    if timestamp == LATEST:
        found = Found(end)
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        found = Found(log.log_start_offset)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        found = Found(-1)
    else:
        at = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.find_timestamp(timestamp)
        found = Found(at[1], at[0]) if at is not None and at[1] < end else Found(-1)
    epoch = log.epochs.epoch_for_offset(found.offset) if found.offset >= 0 else None
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=epoch if epoch is not None else -1,
    )
