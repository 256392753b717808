"""WriteTxnMarkers: a transaction coordinator ends transactions in partitions that this broker leads.

The tool that aborts hanging transactions uses it as well.

Behavior:
- All markers of a request are appended at once. The response follows when the in-sync replicas have all of them.

Version notes (1 to 2): 1 is flexible, 2 has the client's transaction version (KIP-890).
"""

import asyncio
from collections.abc import Iterator
from itertools import repeat

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_cluster, requires
from headrace.broker.rights import is_allowed_on_cluster
from headrace.broker.transactions import Transactions
from headrace.common.errors import (
    ClusterAuthorizationFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    KafkaError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.result import ProducerInfo
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headrace.security.acls import Operation


@api(ApiKey.WRITE_TXN_MARKERS, 1, 2, needs=requires(on_cluster(Operation.ALTER) | on_cluster(Operation.CLUSTER_ACTION)))
async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext, *, transactions: Transactions
) -> WriteTxnMarkersResponse:
    if not is_allowed_on_cluster(context, Operation.ALTER, audited=False) and not is_allowed_on_cluster(
        context, Operation.CLUSTER_ACTION
    ):
        return await _response(request, context, repeat(ClusterAuthorizationFailedError.code))
    written: list[asyncio.Future[int]] = []
    """The error codes, in the order of the request."""
    for marker in request.markers:
        for topic in marker.topics:
            for partition in topic.partition_indexes:
                written.append(_write(transactions, marker, TopicPartition(topic.name, partition)))
                await context.give_way()
    return await _response(request, context, iter(await asyncio.gather(*written)))


async def _response(
    request: WriteTxnMarkersRequest, context: RequestContext, codes: Iterator[int]
) -> WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = []
    for marker in request.markers:
        topics: list[WritableTxnMarkerTopicResult] = []
        for topic in marker.topics:
            partitions = [
                WritableTxnMarkerPartitionResult(partition_index=partition, error_code=next(codes))
                for partition in topic.partition_indexes
            ]
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            await context.give_way()
        markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=markers)


def _write(transactions: Transactions, marker: WritableTxnMarker, tp: TopicPartition) -> "asyncio.Future[int]":
    """Appends a marker to a partition. The result is the error code when the in-sync replicas have the marker."""
    written: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def done(error: KafkaError | None) -> None:
        if not written.done():
            written.set_result(0 if error is None else _code(error))

    if marker.producer_id < 0 or marker.producer_epoch < 0:
        done(InvalidRequestError("A marker must have a producer id and epoch"))
        return written
    producer = ProducerInfo(marker.producer_id, marker.producer_epoch)
    transactions.write_marker(
        tp, producer, marker.transaction_result, marker.coordinator_epoch, marker.transaction_version, done
    )
    return written


def _code(error: KafkaError) -> int:
    """Returns the error code for the sender, which expects errors of partition leaders, not of group coordinators."""
    if isinstance(error, NotCoordinatorError | CoordinatorLoadInProgressError | CoordinatorNotAvailableError):
        return NotLeaderForPartitionError.code
    return error.code
