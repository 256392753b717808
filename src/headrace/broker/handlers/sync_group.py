"""SyncGroup: a member asks for its assignment; the leader brings everybody's.

Versions 0 to 5: 3 static members (KIP-345), 4 flexible, 5 protocol type and name, which must be the group's (KIP-559).

The reply comes when the leader's assignment is stored; see `coordinator.group.membership`.
"""

from typing import TYPE_CHECKING

from headrace.broker.dispatch import DEFERRED, HandlerResult, RequestContext, api
from headrace.broker.handlers.join_group import not_written
from headrace.common.errors import InconsistentGroupProtocolError, KafkaError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from headrace.broker.server import Broker

_FIRST_WITH_PROTOCOL = 5

_FIRST_WITH_PROTOCOL = 5


@api(ApiKey.SYNC_GROUP, 0, 5)
def handle(broker: "Broker", request: SyncGroupRequest, context: RequestContext) -> HandlerResult:
    if context.api_version >= _FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=InconsistentGroupProtocolError.code)
    if context.api_version >= _FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=InconsistentGroupProtocolError.code)
    index = broker.coordinators.group_partition(request.group_id)
    try:
        broker.coordinators.groups.shard(index)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
    broker.coordinators.groups.write(index, lambda shard: shard.members.sync(request, context.reply), not_written)
    return DEFERRED
