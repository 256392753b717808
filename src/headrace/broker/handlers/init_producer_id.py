"""InitProducerId: gives a producer its id and epoch (KIP-98).

Versions 0 to 5: 1 throttling before errors, 2 flexible, 3 a producer asks for a newer epoch of the id that it has
(KIP-360), 4 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588), 5 as 4 (KIP-890).

Without a transactional id a producer is only idempotent: it gets a new id with epoch 0, from any broker, whatever id it
had before. With one it gets the id that belongs to it and a newer epoch, which fences those that came before it; a
transaction that one of them left open is aborted first, and the producer told to ask again.
Transactions of two phases (version 6, KIP-939) are not served.
"""

from headrace.broker.dispatch import RequestContext, api
from headrace.broker.transactions import Transactions
from headrace.cluster.producer_id_manager import ProducerIdManager
from headrace.common.errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidRequestError,
    KafkaError,
    ProducerFencedError,
)
from headrace.coordinator.result import ProducerInfo
from headrace.coordinator.transaction.shard import NeedsProducerId, TakeId
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FIRST_WITH_FENCED = 4


@api(ApiKey.INIT_PRODUCER_ID, 0, 5)
async def handle(
    request: InitProducerIdRequest,
    context: RequestContext,
    *,
    producer_ids: ProducerIdManager,
    transactions: Transactions,
) -> InitProducerIdResponse:
    try:
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise InvalidRequestError("a producer has both an id and an epoch, or neither")
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)
        given = await _init(producer_ids, transactions, request, request.transactional_id)
    except KafkaError as error:
        code = error.code
        if isinstance(error, ProducerFencedError) and context.api_version < _FIRST_WITH_FENCED:
            code = InvalidProducerEpochError.code
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.producer_epoch)


async def _init(
    producer_ids: ProducerIdManager, transactions: Transactions, request: InitProducerIdRequest, transactional_id: str
) -> ProducerInfo:
    expected = ProducerInfo(request.producer_id, request.producer_epoch)

    async def init(take_id: TakeId) -> ProducerInfo | None:
        return await transactions.runtime.call(
            transactions.partition_of(transactional_id),
            lambda shard: shard.init_producer_id(
                transactional_id,
                request.transaction_timeout_ms,
                expected if expected.producer_id >= 0 else None,
                take_id,
            ),
        )

    try:
        given = await init(transactions.take_id)
    except NeedsProducerId:
        fresh = await producer_ids.next()
        given = await init(lambda: fresh)
    if given is None:
        raise ConcurrentTransactionsError(f"the last transaction of {transactional_id!r} is being aborted")
    return given
