"""JoinGroup: a member joins a group, or rejoins for the next generation.

Behavior:
- The response is sent when the group's next generation begins (see `coordinator.group.rebalances`).

Version notes (0 to 9):
- 1 has a separate rebalance timeout (KIP-62)
- 4 joins in two steps: the first response assigns a member id (KIP-394)
- 5 has static members (KIP-345)
- 6 is flexible
- 7 has the protocol type in the response (KIP-559)
- 8 has the member's reason (KIP-800)
- 9 can tell the leader to keep the assignment (KIP-814)
"""

from headrace.broker.apis import DEFERRED, HandlerResult, api
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.group_requests import run_member_operation
from headrace.broker.required_rights import on_group, requires
from headrace.broker.rights import is_allowed
from headrace.common.errors import GroupAuthorizationFailedError, KafkaError
from headrace.coordinator.group.joining import ClientInfo
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.security.acls import Operation, ResourceType

_FIRST_WITH_NULL_PROTOCOL = 7


@api(ApiKey.JOIN_GROUP, 0, 9, needs=requires(on_group(Operation.READ)))
def handle(request: JoinGroupRequest, context: RequestContext, *, coordinators: Coordinators) -> HandlerResult:
    version = context.api_version
    client = ClientInfo(context.client_id or "", f"/{context.connection.peer[0]}")  # Kafka shows hosts with this slash

    def error_response(error: KafkaError) -> JoinGroupResponse:
        return JoinGroupResponse(error_code=error.code, member_id=request.member_id)

    def reply(response: JoinGroupResponse) -> None:
        if version < _FIRST_WITH_NULL_PROTOCOL:
            response.protocol_name = response.protocol_name or ""
        elif response.error_code:
            response.protocol_name = None
        context.reply(response)

    if not is_allowed(context, Operation.READ, ResourceType.GROUP, request.group_id):
        reply(JoinGroupResponse(error_code=GroupAuthorizationFailedError.code))
        return DEFERRED
    run_member_operation(
        coordinators,
        request.group_id,
        lambda shard, reply: shard.members.join(request, client, version, reply),
        error_response,
        reply,
    )
    return DEFERRED
