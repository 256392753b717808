"""WriteTxnMarkers: a transaction coordinator ends transactions in partitions that this broker leads.

The tool that aborts hanging transactions uses it as well.

Version notes (1 to 2): 1 is flexible, 2 has the client's transaction version (KIP-890).
"""

import asyncio

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.transactions import Transactions
from headrace.common.errors import (
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


@api(ApiKey.WRITE_TXN_MARKERS, 1, 2)
async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext, *, transactions: Transactions
) -> WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = []
    for marker in request.markers:
        markers.append(await _write(transactions, marker, context))
        await context.give_way()
    return WriteTxnMarkersResponse(markers=markers)


async def _write(
    transactions: Transactions, marker: WritableTxnMarker, context: RequestContext
) -> WritableTxnMarkerResult:
    topics: list[WritableTxnMarkerTopicResult] = []
    for topic in marker.topics:
        await context.give_way()
        partitions: list[WritableTxnMarkerPartitionResult] = []
        for partition in topic.partition_indexes:
            code = await _write_one(transactions, marker, TopicPartition(topic.name, partition))
            partitions.append(WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code))
            await context.give_way()
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


async def _write_one(transactions: Transactions, marker: WritableTxnMarker, tp: TopicPartition) -> int:
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        return InvalidRequestError.code
    written: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def done(error: KafkaError | None) -> None:
        if not written.done():
            written.set_result(0 if error is None else _code(error))

    producer = ProducerInfo(marker.producer_id, marker.producer_epoch)
    transactions.write_marker(
        tp, producer, marker.transaction_result, marker.coordinator_epoch, marker.transaction_version, done
    )
    return await written


def _code(error: KafkaError) -> int:
    """Returns the error code for the sender, which expects errors of partition leaders, not of group coordinators."""
    if isinstance(error, NotCoordinatorError | CoordinatorLoadInProgressError | CoordinatorNotAvailableError):
        return NotLeaderForPartitionError.code
    return error.code
