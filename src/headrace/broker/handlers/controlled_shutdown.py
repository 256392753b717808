"""ControlledShutdown: a broker that shuts down asks the controller to move its leaderships to other brokers.

Behavior:
- Any other broker than the active controller responds with NOT_CONTROLLER.
- The remaining partitions are those that the broker still leads, because no other in-sync replica is alive.

Version notes (1 to 3): 2 has the broker epoch (KIP-380), 3 is flexible. Version 0 has another request header.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.cluster.controller import Controller
from headrace.common.errors import KafkaError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from headrace.security.acls import Operation

_UNKNOWN_EPOCH = -1


@api(ApiKey.CONTROLLED_SHUTDOWN, 1, 3, needs=requires_cluster(Operation.CLUSTER_ACTION))
async def handle(
    request: ControlledShutdownRequest, _: RequestContext, *, controller: Controller
) -> ControlledShutdownResponse:
    try:
        broker_epoch = request.broker_epoch
        if broker_epoch == _UNKNOWN_EPOCH and (broker := controller.context.brokers.get(request.broker_id)) is not None:
            broker_epoch = broker.epoch  # an old broker does not know its epoch
        remaining = await controller.controlled_shutdown(request.broker_id, broker_epoch)
    except KafkaError as error:
        return ControlledShutdownResponse(error_code=error.code)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=tp.topic, partition_index=tp.partition) for tp in sorted(remaining)
        ]
    )
