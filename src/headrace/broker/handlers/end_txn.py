"""EndTxn: commits or aborts a transaction.

Behavior:
- Responds when the decision is written. The markers follow. Until all markers are written, the producer's next
  transaction gets CONCURRENT_TRANSACTIONS.

Version notes (0 to 5):
- 2 has PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
- 3 is flexible
- 4 is the same as 3
- 5 ends each transaction with a new epoch, which the response has (KIP-890)
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_transactional_id, requires
from headrace.broker.rights import check_transactional_id
from headrace.broker.transactions import Transactions, producer_error_code
from headrace.common.errors import KafkaError
from headrace.coordinator.result import ProducerInfo
from headrace.coordinator.transaction.metadata import EPOCH_PER_TRANSACTION
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.security.acls import Operation

_FIRST_WITH_FENCED = 2
_FIRST_WITH_EPOCHS = 5


@api(ApiKey.END_TXN, 0, 5, needs=requires(on_transactional_id(Operation.WRITE)))
async def handle(request: EndTxnRequest, context: RequestContext, *, transactions: Transactions) -> EndTxnResponse:
    transactional_id = request.transactional_id
    producer = ProducerInfo(request.producer_id, request.producer_epoch)
    version = EPOCH_PER_TRANSACTION if context.api_version >= _FIRST_WITH_EPOCHS else 0

    try:
        check_transactional_id(context, Operation.WRITE, transactional_id)
        ended = await transactions.call(
            transactional_id,
            lambda shard, take_id: shard.end(transactional_id, producer, request.committed, version, take_id),
        )
    except KafkaError as error:
        return EndTxnResponse(error_code=producer_error_code(error, context.api_version >= _FIRST_WITH_FENCED))
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)
