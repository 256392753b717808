"""DescribeTransactions: what this broker, as their coordinator, knows of transactional ids (KIP-664). Version 0."""

from headrace.broker.dispatch import RequestContext, api
from headrace.broker.transactions import Transactions
from headrace.common.errors import InvalidRequestError, KafkaError, TransactionalIdNotFoundError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


@api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0)
def handle(
    request: DescribeTransactionsRequest, context: RequestContext, *, transactions: Transactions
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(transactions, transactional_id) for transactional_id in request.transactional_ids]
    )


def _describe(transactions: Transactions, transactional_id: str) -> TransactionState:
    try:
        if not transactional_id:
            raise InvalidRequestError("a transactional id cannot be empty")
        shard = transactions.runtime.shard(transactions.partition_of(transactional_id))
        found = shard.transactions.get(transactional_id)
        if found is None:
            raise TransactionalIdNotFoundError(f"there is no transactional id {transactional_id!r}")
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for tp in sorted(found.partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
