"""DescribeTransactions: the state of transactional ids that this broker coordinates (KIP-664). Version 0."""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_topic, on_transactional_id, requires
from headrace.broker.rights import TopicRights, check_transactional_id
from headrace.broker.transactions import Transactions
from headrace.broker.yielding import InTurns
from headrace.common.errors import InvalidRequestError, KafkaError, TransactionalIdNotFoundError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from headrace.security.acls import Operation


@api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    0,
    0,
    needs=requires(
        on_transactional_id(Operation.DESCRIBE, "each transactional id"),
        on_topic(Operation.DESCRIBE, "each topic in a transaction", "left out"),
    ),
)
def handle(
    request: DescribeTransactionsRequest, context: RequestContext, *, transactions: Transactions
) -> InTurns[DescribeTransactionsResponse]:
    states: list[TransactionState] = []
    topics = TopicRights(context, Operation.DESCRIBE)
    for transactional_id in dict.fromkeys(request.transactional_ids):
        states.append(_describe(transactions, transactional_id, topics))
        if context.turn_is_over():
            yield
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(transactions: Transactions, transactional_id: str, described: TopicRights) -> TransactionState:
    try:
        check_transactional_id(described.context, Operation.DESCRIBE, transactional_id)
        if not transactional_id:
            raise InvalidRequestError("The transactional id must not be empty")
        shard = transactions.runtime.shard(transactions.partition_of(transactional_id))
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            raise TransactionalIdNotFoundError(f"Transactional id {transactional_id!r} does not exist")
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for tp in sorted(transaction.partitions):
        if described.allows(tp.topic):
            topics.setdefault(tp.topic, []).append(tp.partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
