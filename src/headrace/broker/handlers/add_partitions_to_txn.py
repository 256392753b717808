"""AddPartitionsToTxn: adds partitions to a transaction before the producer writes to them.

Behavior:
- A transaction gets all partitions of a request, or none if one of them does not exist.

Version notes (0 to 5):
- 2 has PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
- 3 is flexible
- 4 has several transactions, and leaders that only verify (KIP-890)
- 5 is the same as 4
"""

from headrace.broker.dispatch import RequestContext, api
from headrace.broker.transactions import Transactions, producer_error_code
from headrace.broker.yielding import yield_to_others
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import (
    KafkaError,
    OperationNotAttemptedError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.result import ProducerInfo
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

_FIRST_WITH_FENCED = 2
_FIRST_WITH_BATCHES = 4


@api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5)
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
            results_by_topic_v3_and_below=await _add(image, transactions, transaction, version)
        )
    results: list[AddPartitionsToTxnResult] = []
    for transaction in request.transactions:
        added = await _add(image, transactions, transaction, version)
        results.append(AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=added))
        await yield_to_others(len(results))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add(
    image: MetadataImage, transactions: Transactions, requested: AddPartitionsToTxnTransaction, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = [TopicPartition(topic.name, partition) for topic in requested.topics for partition in topic.partitions]
    unknown = {tp for tp in partitions if image.partition(tp.topic, tp.partition) is None}
    if unknown:
        codes = {
            tp: (UnknownTopicOrPartitionError if tp in unknown else OperationNotAttemptedError).code
            for tp in partitions
        }
        return _results(requested.topics, codes)
    producer = ProducerInfo(requested.producer_id, requested.producer_epoch)
    coordinator_partition = transactions.partition_of(requested.transactional_id)
    try:
        if requested.verify_only:
            verified = transactions.runtime.shard(coordinator_partition).verify(
                requested.transactional_id, producer, partitions
            )
            codes = {
                tp: 0 if is_in_transaction else TransactionAbortableError.code
                for tp, is_in_transaction in verified.items()
            }
        else:
            await transactions.runtime.call(
                coordinator_partition,
                lambda shard: shard.add_partitions(requested.transactional_id, producer, partitions),
            )
            codes = dict.fromkeys(partitions, 0)
    except KafkaError as error:
        codes = dict.fromkeys(partitions, producer_error_code(error, version >= _FIRST_WITH_FENCED))
    return _results(requested.topics, codes)


def _results(
    topics: list[AddPartitionsToTxnTopic], codes: dict[TopicPartition, int]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition, partition_error_code=codes[TopicPartition(topic.name, partition)]
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
