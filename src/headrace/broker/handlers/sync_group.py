"""SyncGroup: a member asks for its assignment; the leader brings everybody's.

Versions 0 to 5: 3 static members (KIP-345), 4 flexible, 5 protocol type and name, which must be the group's (KIP-559).

The reply comes when the leader's assignment is stored; see `coordinator.group.membership`.
"""

from typing import TYPE_CHECKING

from headrace.broker.dispatch import DEFERRED, HandlerResult, RequestContext, api
from headrace.broker.handlers.join_group import not_written
from headrace.common.errors import KafkaError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from headrace.broker.server import Broker


@api(ApiKey.SYNC_GROUP, 0, 5)
def handle(broker: "Broker", request: SyncGroupRequest, context: RequestContext) -> HandlerResult:
    index = broker.coordinators.group_partition(request.group_id)
    try:
        broker.coordinators.groups.shard(index)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
    broker.coordinators.groups.write(index, lambda shard: shard.members.sync(request, context.reply), not_written)
    return DEFERRED
