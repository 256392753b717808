"""AllocateProducerIds: the controller assigns a broker the next block of producer ids (KIP-730).

Behavior:
- Any other broker than the active controller responds with NOT_CONTROLLER. A broker that has registered again since
  gets STALE_BROKER_EPOCH.
- Blocks are allocated by compare-and-set in the store, so they are unique even if two brokers believe to be controller.

Version notes (0): flexible.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.cluster.controller import Controller
from headrace.cluster.producer_id_manager import allocate_block
from headrace.cluster.store import CoordinationStore
from headrace.common.errors import HeadraceError, StaleBrokerEpochError, code_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from headrace.security.acls import Operation


@api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, needs=requires_cluster(Operation.CLUSTER_ACTION))
async def handle(
    request: AllocateProducerIdsRequest, _: RequestContext, *, controller: Controller, store: CoordinationStore
) -> AllocateProducerIdsResponse:
    try:
        broker = controller.context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            raise StaleBrokerEpochError(f"Broker {request.broker_id} has no current epoch {request.broker_epoch}")
        block = await allocate_block(store, request.broker_id)
    except HeadraceError as error:
        return AllocateProducerIdsResponse(error_code=code_of(error))
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)
