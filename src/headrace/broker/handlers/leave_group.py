"""LeaveGroup: members leave, so that the group need not wait for their session timeouts.

Version notes (0 to 5):
- 3 has several members, and static members by instance id (KIP-345)
- 4 is flexible
- 5 has the member's reason (KIP-800)
"""

from collections.abc import Sequence

from headrace.broker.apis import HandlerResult, api
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.group_requests import run_group_operations
from headrace.broker.required_rights import on_group, requires
from headrace.broker.rights import is_allowed
from headrace.broker.yielding import InTurns, parts
from headrace.common.errors import GroupAuthorizationFailedError, KafkaError, UnknownMemberIdError
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResult
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from headrace.security.acls import Operation, ResourceType

_FIRST_WITH_MEMBERS = 3
MEMBERS_PER_OPERATION = 500
"""A request with more members is split."""


@api(ApiKey.LEAVE_GROUP, 0, 5, needs=requires(on_group(Operation.READ)))
def handle(
    request: LeaveGroupRequest, context: RequestContext, *, coordinators: Coordinators
) -> HandlerResult | InTurns[HandlerResult]:
    if not is_allowed(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=GroupAuthorizationFailedError.code)
    has_members = context.api_version >= _FIRST_WITH_MEMBERS
    if not has_members:
        request.members = [MemberIdentity(member_id=request.member_id)]

    def leave(
        shard: GroupCoordinatorShard, members: Sequence[MemberIdentity]
    ) -> CoordinatorResult[list[MemberResponse] | KafkaError]:
        result = shard.members.leave(request.group_id, members)
        return CoordinatorResult(result.records, result.response, result.on_completion)

    def failed(members: Sequence[MemberIdentity], error: KafkaError) -> list[MemberResponse] | KafkaError:
        if not isinstance(error, UnknownMemberIdError):
            return error
        return [  # the group does not exist
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error.code
            )
            for member in members
        ]

    def reply(results: list[list[MemberResponse] | KafkaError]) -> None:
        members: list[MemberResponse] = []
        for result in results:
            if isinstance(result, KafkaError):
                context.reply(LeaveGroupResponse(error_code=result.code))
                return
            members += result
        if has_members:
            context.reply(LeaveGroupResponse(members=members))
        else:
            context.reply(LeaveGroupResponse(error_code=members[0].error_code))

    return run_group_operations(
        coordinators,
        context,
        list(parts(request.members, MEMBERS_PER_OPERATION)),
        lambda _: request.group_id,
        leave,
        failed,
        reply,
    )
