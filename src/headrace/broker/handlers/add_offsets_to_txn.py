"""AddOffsetsToTxn: adds a group's partition of `__consumer_offsets` to a transaction, before it commits offsets.

Version notes (0 to 4):
- 2 has PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
- 3 is flexible
- 4 is the same as 3 (KIP-890)
"""

from headrace.broker.apis import api
from headrace.broker.config.coordinators import GROUP_TOPIC
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_group, on_transactional_id, requires
from headrace.broker.rights import check_group, check_transactional_id
from headrace.broker.transactions import Transactions, producer_error_code
from headrace.common.errors import (
    InvalidGroupIdError,
    InvalidRequestError,
    KafkaError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.result import ProducerInfo
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.security.acls import Operation

_FIRST_WITH_FENCED = 2


@api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, needs=requires(on_transactional_id(Operation.WRITE), on_group(Operation.READ)))
async def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext, *, coordinators: Coordinators, transactions: Transactions
) -> AddOffsetsToTxnResponse:
    producer = ProducerInfo(request.producer_id, request.producer_epoch)
    try:
        check_transactional_id(context, Operation.WRITE, request.transactional_id)
        check_group(context, Operation.READ, request.group_id)
        if not request.transactional_id:
            raise InvalidRequestError("The transactional id must not be empty")
        if not request.group_id:
            raise InvalidGroupIdError("The group id must not be empty")
        await coordinators.ensure_topic(GROUP_TOPIC)
        offsets = TopicPartition(GROUP_TOPIC, coordinators.group_partition(request.group_id))
        await transactions.runtime.call(
            transactions.partition_of(request.transactional_id),
            lambda shard: shard.add_partitions(request.transactional_id, producer, [offsets]),
        )
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=producer_error_code(error, context.api_version >= _FIRST_WITH_FENCED))
    return AddOffsetsToTxnResponse()
