"""SyncGroup: a member requests its assignment. The leader sends the assignments of all members.

Behavior:
- The response is sent when the leader's assignment is stored (see `coordinator.group.membership`).

Version notes (0 to 5):
- 3 has static members (KIP-345)
- 4 is flexible
- 5 has protocol type and name, which must be the group's (KIP-559)
"""

from headrace.broker.apis import DEFERRED, HandlerResult, api
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.group_requests import run_member_operation
from headrace.broker.required_rights import on_group, requires
from headrace.broker.rights import is_allowed
from headrace.common.errors import GroupAuthorizationFailedError, InconsistentGroupProtocolError, KafkaError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.security.acls import Operation, ResourceType

_FIRST_WITH_PROTOCOL = 5


@api(ApiKey.SYNC_GROUP, 0, 5, needs=requires(on_group(Operation.READ)))
def handle(request: SyncGroupRequest, context: RequestContext, *, coordinators: Coordinators) -> HandlerResult:
    if context.api_version >= _FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=InconsistentGroupProtocolError.code)

    if not is_allowed(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return SyncGroupResponse(error_code=GroupAuthorizationFailedError.code)

    def error_response(error: KafkaError) -> SyncGroupResponse:
        return SyncGroupResponse(error_code=error.code)

    run_member_operation(
        coordinators,
        request.group_id,
        lambda shard, reply: shard.members.sync(request, reply),
        error_response,
        context.reply,
    )
    return DEFERRED
