"""AddPartitionsToTxn: adds partitions to a transaction before the producer writes to them.

Behavior:
- A transaction gets all partitions of a request, or none if one of them does not exist.
- From version 4 on, requests come from the leaders of partitions, not from clients. Leaders verify partitions for older
  producers, and add them for producers whose transactions have their own epochs.

Version notes (0 to 5):
- 2 has PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
- 3 is flexible
- 4 has several transactions, and leaders that only verify (KIP-890)
- 5 is the same as 4
"""

from collections.abc import Callable

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_cluster, on_topic, on_transactional_id, requires
from headrace.broker.rights import is_allowed, is_allowed_on_cluster, is_allowed_on_topic
from headrace.broker.transactions import Transactions, producer_error_code
from headrace.broker.yielding import parts
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import is_internal
from headrace.common.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    OperationNotAttemptedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResult, ProducerInfo
from headrace.coordinator.transaction.metadata import EPOCH_PER_TRANSACTION
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from headrace.security.acls import Operation, ResourceType

_FIRST_WITH_FENCED = 2
_FIRST_WITH_BATCHES = 4


@api(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    0,
    5,
    needs=requires(
        on_transactional_id(Operation.WRITE, "up to version 3"),
        on_topic(Operation.WRITE, "each topic, up to version 3"),
        on_cluster(Operation.CLUSTER_ACTION, "from version 4 on, which only brokers send"),
    ),
)
async def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext, *, image: MetadataImage, transactions: Transactions
) -> AddPartitionsToTxnResponse:
    version = context.api_version
    if version < _FIRST_WITH_BATCHES:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=await _add(image, transactions, transaction, context)
        )
    if not is_allowed_on_cluster(context, Operation.CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=ClusterAuthorizationFailedError.code)
    results: list[AddPartitionsToTxnResult] = []
    for transaction in request.transactions:
        added = await _add(image, transactions, transaction, context)
        await context.give_way()
        results.append(AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=added))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add(
    image: MetadataImage, transactions: Transactions, requested: AddPartitionsToTxnTransaction, context: RequestContext
) -> list[AddPartitionsToTxnTopicResult]:
    partitions: dict[TopicPartition, int] = {}
    """The partitions and their error codes."""
    is_client = context.api_version < _FIRST_WITH_BATCHES
    if is_client and not is_allowed(
        context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, requested.transactional_id
    ):
        return await _results(requested.topics, lambda _: TransactionalIdAuthorizationFailedError.code, context)
    for topic in requested.topics:
        is_denied = is_client and (
            is_internal(topic.name) or not is_allowed_on_topic(context, Operation.WRITE, topic.name)
        )
        for part in parts(topic.partitions):
            for partition in part:
                if is_denied:
                    code = TopicAuthorizationFailedError.code
                else:
                    missing = image.partition(topic.name, partition) is None
                    code = UnknownTopicOrPartitionError.code if missing else 0
                partitions[TopicPartition(topic.name, partition)] = code
            await context.give_way()
    if any(partitions.values()):
        return await _results(requested.topics, lambda tp: partitions[tp] or OperationNotAttemptedError.code, context)
    producer = ProducerInfo(requested.producer_id, requested.producer_epoch)
    version = EPOCH_PER_TRANSACTION if context.api_version >= _FIRST_WITH_BATCHES else 0
    coordinator_partition = transactions.partition_of(requested.transactional_id)
    try:
        if requested.verify_only:
            verified = await transactions.runtime.call(
                coordinator_partition,
                lambda shard: CoordinatorResult(
                    (), shard.verify(requested.transactional_id, producer, list(partitions))
                ),
            )
            codes = {
                tp: 0 if is_in_transaction else TransactionAbortableError.code
                for tp, is_in_transaction in verified.items()
            }
        else:
            await transactions.runtime.call(
                coordinator_partition,
                lambda shard: shard.add_partitions(requested.transactional_id, producer, list(partitions), version),
            )
            codes = dict.fromkeys(partitions, 0)
    except KafkaError as error:
        has_fenced = context.api_version >= _FIRST_WITH_FENCED
        codes = dict.fromkeys(partitions, producer_error_code(error, has_fenced))
    return await _results(requested.topics, codes.__getitem__, context)


async def _results(
    topics: list[AddPartitionsToTxnTopic], code_of: Callable[[TopicPartition], int], context: RequestContext
) -> list[AddPartitionsToTxnTopicResult]:
    results: list[AddPartitionsToTxnTopicResult] = []
    for topic in topics:
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[]))
        for part in parts(topic.partitions):
            results[-1].results_by_partition += [
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition, partition_error_code=code_of(TopicPartition(topic.name, partition))
                )
                for partition in part
            ]
            await context.give_way()
    return results
