"""EndTxn: commits or aborts a transaction.

Behavior:
- Responds when the decision is written. The markers follow; until all are written, the producer's next transaction gets
  CONCURRENT_TRANSACTIONS.

Version notes (0 to 5):
- 2 has PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
- 3 is flexible
- 4 is the same as 3
- 5 ends each transaction with a new epoch, which the response has (KIP-890)
"""

from headrace.broker.dispatch import RequestContext, api
from headrace.broker.transactions import Transactions
from headrace.cluster.producer_id_manager import ProducerIdManager
from headrace.common.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from headrace.coordinator.result import ProducerInfo
from headrace.coordinator.transaction.metadata import EPOCH_PER_TRANSACTION
from headrace.coordinator.transaction.shard import NeedsProducerId, TakeId
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_FIRST_WITH_FENCED = 2
_FIRST_WITH_EPOCHS = 5


@api(ApiKey.END_TXN, 0, 5)
async def handle(
    request: EndTxnRequest, context: RequestContext, *, producer_ids: ProducerIdManager, transactions: Transactions
) -> EndTxnResponse:
    transactional_id = request.transactional_id
    producer = ProducerInfo(request.producer_id, request.producer_epoch)
    version = EPOCH_PER_TRANSACTION if context.api_version >= _FIRST_WITH_EPOCHS else 0

    async def end(take_id: TakeId) -> ProducerInfo:
        return await transactions.runtime.call(
            transactions.partition_of(transactional_id),
            lambda shard: shard.end(transactional_id, producer, request.committed, version, take_id),
        )

    try:
        try:
            ended = await end(transactions.take_id)
        except NeedsProducerId:
            producer_id = await producer_ids.next()
            ended = await end(lambda: producer_id)
    except KafkaError as error:
        code = error.code
        if isinstance(error, ProducerFencedError) and context.api_version < _FIRST_WITH_FENCED:
            code = InvalidProducerEpochError.code
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)
