"""InitProducerId: gives a producer its id and epoch (KIP-98).

Versions 0 to 5: 1 throttling before errors, 2 flexible, 3 a producer asks for a newer epoch of the id that it has
(KIP-360), 4 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588), 5 transactions that a server may say are to be
aborted (KIP-890).

Without a transactional id a producer is only idempotent: it gets a new id with epoch 0, from any broker, whatever id it
had before.
"""

from typing import TYPE_CHECKING

from headrace.broker.dispatch import RequestContext, api
from headrace.common.errors import CoordinatorNotAvailableError, KafkaError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from headrace.broker.server import Broker


@api(ApiKey.INIT_PRODUCER_ID, 0, 5)
async def handle(broker: "Broker", request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    try:
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)
        raise CoordinatorNotAvailableError("transactions are not served yet")
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
