"""ListOffsets: the offset for a timestamp.

Behavior:

    timestamp -1   latest: the high watermark, with read_committed the last stable offset
    timestamp -2   earliest: the log start offset
    timestamp -3   the first record that has the maximum timestamp
    timestamp -4   the earliest local offset: the log start offset, as there is no tiered storage
    timestamp -5   the latest tiered offset: none, offset -1
    timestamp -6   the earliest offset pending upload to tiered storage: none, offset -1
    any other      the first record with that timestamp or a later one; offset -1 if there is none

A leader whose high watermark has not reached the start of its epoch responds to consumers with OFFSET_NOT_AVAILABLE
(before version 5 LEADER_NOT_AVAILABLE), unless the offset is committed: its predecessor may have returned a later one
(KIP-207).

A partition that the request names twice gets INVALID_REQUEST. A large batch is decompressed in a thread.

Version notes (1 to 11):
- 2 has the isolation level (KIP-98)
- 4 has leader epochs (KIP-320)
- 5 has OFFSET_NOT_AVAILABLE (KIP-207)
- 6 is flexible
- 7 has timestamp -3 (KIP-734)
- 8 has timestamp -4 (KIP-405)
- 9 has timestamp -5 (KIP-1005)
- 10 has a timeout (KIP-1075)
- 11 has timestamp -6 (KIP-1023)
"""

import logging
from collections import Counter
from functools import partial
from typing import NamedTuple

from headrace.broker.apis import HandlerResult, api
from headrace.broker.batch_inflater import BatchInflater
from headrace.broker.dispatch import RequestContext
from headrace.broker.fetching import fetch_isolation
from headrace.broker.partition import Partition
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.required_rights import on_topic, requires
from headrace.broker.rights import is_allowed_on_topic
from headrace.broker.yielding import InTurns, parts
from headrace.common.config import INT_MAX
from headrace.common.errors import (
    InvalidRequestError,
    KafkaError,
    LeaderNotAvailableError,
    OffsetNotAvailableError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.records import RecordBatch
from headrace.security.acls import Operation
from headrace.storage.large_batches import MAX_INLINE_BYTES, LargeStoredBatchError
from headrace.storage.log import FetchIsolation

_logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_FIRST_WITH_OFFSET_NOT_AVAILABLE = 5
_FIRST_VERSION_WITH = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class FoundOffset(NamedTuple):
    """An offset and the timestamp of its record, -1 if unknown."""

    offset: int
    timestamp: int = -1


class LargeLookup(NamedTuple):
    """A lookup in a batch that must be decompressed in a thread, and the place of its response."""

    topic: str
    requested: ListOffsetsPartition
    batch: RecordBatch
    responses: list[ListOffsetsPartitionResponse]
    position: int


@api(ApiKey.LIST_OFFSETS, 1, 11, needs=requires(on_topic(Operation.DESCRIBE, "each topic")))
def handle(
    request: ListOffsetsRequest, context: RequestContext, *, batch_inflater: BatchInflater, replicas: ReplicaManager
) -> InTurns[HandlerResult]:
    isolation = fetch_isolation(request.replica_id, request.isolation_level)
    counts = yield from _count(request, context)
    topics: list[ListOffsetsTopicResponse] = []
    large: list[LargeLookup] = []
    for topic in request.topics:
        if context.turn_is_over():
            yield
        responses: list[ListOffsetsPartitionResponse] = []
        is_denied = not is_allowed_on_topic(context, Operation.DESCRIBE, topic.name)
        for requested in topic.partitions:
            try:
                if is_denied:
                    raise TopicAuthorizationFailedError
                if counts[topic.name, requested.partition_index] > 1:
                    raise InvalidRequestError(
                        f"The request names partition {topic.name}-{requested.partition_index} more than once"
                    )
                response = _find_offset(replicas, topic.name, requested, isolation, context.api_version)
            except LargeStoredBatchError as error:
                large.append(LargeLookup(topic.name, requested, error.batch, responses, len(responses)))
                response = _error_response(requested, KafkaError.code)
            except Exception as error:  # noqa: BLE001 - logged there
                response = _failed(topic.name, requested, error)
            responses.append(response)
            if context.turn_is_over():
                yield
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=responses))
    found = ListOffsetsResponse(topics=topics)
    if large:
        retained_bytes = sum(lookup.batch.size_in_bytes for lookup in large)
        return context.run(_find_in_large(large, found, context, isolation, replicas, batch_inflater), retained_bytes)
    return found


async def _find_in_large(
    large: list[LargeLookup],
    found: ListOffsetsResponse,
    context: RequestContext,
    isolation: FetchIsolation,
    replicas: ReplicaManager,
    batch_inflater: BatchInflater,
) -> HandlerResult:
    """Completes the lookups in large batches. They are decompressed in a thread, one after the other."""
    version = context.api_version
    for topic, requested, first_batch, responses, position in large:
        batch = first_batch
        try:
            while True:
                start_offset = replicas.find(topic, requested.partition_index).check_leader().log_start_offset
                record = await batch_inflater.run(partial(_lookup, batch, requested.timestamp, start_offset))
                try:
                    responses[position] = _find_offset(
                        replicas, topic, requested, isolation, version, min_offset=batch.next_offset, record=record
                    )
                    break
                except LargeStoredBatchError as error:
                    batch = error.batch
        except Exception as error:  # noqa: BLE001 - logged there
            responses[position] = _failed(topic, requested, error)
    return found


def _lookup(batch: RecordBatch, timestamp: int, min_offset: int) -> tuple[int, int] | None:
    # The topic's limit applied when the batch was appended, and may have changed since then.
    records = batch.records(INT_MAX)
    return records.max_timestamp() if timestamp == MAX_TIMESTAMP else records.first_at_or_after(timestamp, min_offset)


def _failed(topic: str, requested: ListOffsetsPartition, error: Exception) -> ListOffsetsPartitionResponse:
    if isinstance(error, KafkaError):
        return _error_response(requested, error.code)
    _logger.error("Partition %s-%d: an offset lookup failed", topic, requested.partition_index, exc_info=error)
    return _error_response(requested, KafkaError.code)


def _count(request: ListOffsetsRequest, context: RequestContext) -> InTurns[Counter[tuple[str, int]]]:
    """Returns how often the request names each partition."""
    counts: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for part in parts(topic.partitions):
            counts.update((topic.name, requested.partition_index) for requested in part)
            if context.turn_is_over():
                yield
    return counts


def _error_response(requested: ListOffsetsPartition, code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index, error_code=code, timestamp=-1, offset=-1
    )


def _find_offset(
    replicas: ReplicaManager,
    topic: str,
    requested: ListOffsetsPartition,
    isolation: FetchIsolation,
    version: int,
    min_offset: int = 0,
    record: tuple[int, int] | None = None,
) -> ListOffsetsPartitionResponse:
    """Returns the offset of a timestamp, at or after `min_offset`. `record` is the result if it is known already."""
    timestamp = requested.timestamp
    if version < _FIRST_VERSION_WITH.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        raise UnsupportedVersionError(f"ListOffsets version {version} does not support timestamp {timestamp}")
    partition = replicas.find(topic, requested.partition_index)
    log = partition.check_leader(requested.current_leader_epoch)
    end_offset = log.readable_end(isolation)
    if timestamp == LATEST:
        _check_available(partition, isolation, version)
        result = FoundOffset(end_offset)
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        result = FoundOffset(log.log_start_offset)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        result = FoundOffset(-1)
    else:
        position = record
        if position is None and timestamp == MAX_TIMESTAMP:
            position = log.max_timestamp(MAX_INLINE_BYTES)
        elif position is None:
            position = log.find_timestamp(timestamp, min_offset, MAX_INLINE_BYTES)
        if position is not None and position[1] < end_offset:
            result = FoundOffset(position[1], position[0])
        else:
            _check_available(partition, isolation, version)
            result = FoundOffset(-1)
    epoch = log.epochs.epoch_for_offset(result.offset) if result.offset >= 0 else None
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        timestamp=result.timestamp,
        offset=result.offset,
        leader_epoch=epoch if epoch is not None else -1,
    )


def _check_available(partition: Partition, isolation: FetchIsolation, version: int) -> None:
    """Raises an error for consumers if the high watermark of a new leader may be behind that of its predecessor."""
    start = partition.leader_epoch_start
    log = partition.log
    if isolation is FetchIsolation.LOG_END or start is None or log is None or log.high_watermark >= start:
        return
    message = (
        f"Partition {partition.tp}: the high watermark {log.high_watermark} of the new leader has not reached the "
        f"start of its epoch, {start}"
    )
    if version < _FIRST_WITH_OFFSET_NOT_AVAILABLE:
        raise LeaderNotAvailableError(message)
    raise OffsetNotAvailableError(message)
