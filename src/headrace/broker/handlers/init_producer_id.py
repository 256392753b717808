"""InitProducerId: assigns a producer id and epoch to a producer (KIP-98).

Behavior:
- Without a transactional id the producer is idempotent: any broker assigns a new id with epoch 0.
- With a transactional id the producer gets the id that belongs to it, and a newer epoch, which fences earlier
  producers. If one of them left a transaction open, it is aborted first: the producer gets CONCURRENT_TRANSACTIONS and
  retries.

Not supported: two-phase commit (version 6, KIP-939).

Version notes (0 to 5):
- 1 throttles before errors
- 2 is flexible
- 3 requests a newer epoch for a known id (KIP-360)
- 4 has PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
- 5 is the same as 4 (KIP-890)
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_cluster, on_topic, on_transactional_id, requires
from headrace.broker.rights import check_transactional_id, is_allowed_on_any_topic, is_allowed_on_cluster
from headrace.broker.transactions import Transactions, producer_error_code
from headrace.cluster.producer_id_manager import ProducerIdManager
from headrace.common.errors import (
    ClusterAuthorizationFailedError,
    ConcurrentTransactionsError,
    InvalidRequestError,
    KafkaError,
)
from headrace.coordinator.result import ProducerInfo
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.security.acls import Operation

_FIRST_WITH_FENCED = 4


@api(
    ApiKey.INIT_PRODUCER_ID,
    0,
    5,
    needs=requires(
        on_transactional_id(Operation.WRITE, "with a transactional id"),
        on_topic(Operation.WRITE, "without a transactional id: at least one topic")
        | on_cluster(Operation.IDEMPOTENT_WRITE, "without a transactional id"),
    ),
)
async def handle(
    request: InitProducerIdRequest,
    context: RequestContext,
    *,
    producer_ids: ProducerIdManager,
    transactions: Transactions,
) -> InitProducerIdResponse:
    try:
        _check_rights(request, context)
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise InvalidRequestError("A request must have both a producer id and an epoch, or neither")
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)
        producer = await _init(transactions, request, request.transactional_id)
    except KafkaError as error:
        code = producer_error_code(error, context.api_version >= _FIRST_WITH_FENCED)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def _check_rights(request: InitProducerIdRequest, context: RequestContext) -> None:
    if request.transactional_id is not None:
        check_transactional_id(context, Operation.WRITE, request.transactional_id)
    elif not is_allowed_on_cluster(context, Operation.IDEMPOTENT_WRITE, audited=False) and not is_allowed_on_any_topic(
        context, Operation.WRITE
    ):
        raise ClusterAuthorizationFailedError


async def _init(transactions: Transactions, request: InitProducerIdRequest, transactional_id: str) -> ProducerInfo:
    expected = ProducerInfo(request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
    producer = await transactions.call(
        transactional_id,
        lambda shard, take_id: shard.init_producer_id(
            transactional_id, request.transaction_timeout_ms, expected, take_id
        ),
    )
    if producer is None:
        raise ConcurrentTransactionsError(f"The previous transaction of {transactional_id!r} is being aborted")
    return producer
