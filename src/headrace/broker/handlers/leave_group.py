"""LeaveGroup: members leave, so that the group need not wait for their sessions to end.

Versions 0 to 5: 3 several members at once, and static ones by their instance id (KIP-345), 4 flexible, 5 the reason
(KIP-800).
"""

from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import DEFERRED, HandlerResult, RequestContext, api
from headrace.common.errors import KafkaError, UnknownMemberIdError
from headrace.coordinator.result import CoordinatorResponse
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_FIRST_WITH_SEVERAL = 3


@api(ApiKey.LEAVE_GROUP, 0, 5)
def handle(request: LeaveGroupRequest, context: RequestContext, *, coordinators: Coordinators) -> HandlerResult:
    several = context.api_version >= _FIRST_WITH_SEVERAL
    if not several:
        request.members = [MemberIdentity(member_id=request.member_id)]

    def done(outcome: CoordinatorResponse[list[MemberResponse]]) -> None:
        try:
            members = outcome.result()
        except UnknownMemberIdError as error:  # there is no such group
            members = [
                MemberResponse(
                    member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error.code
                )
                for each in request.members
            ]
        except KafkaError as error:
            context.reply(LeaveGroupResponse(error_code=error.code))
            return
        if several:
            context.reply(LeaveGroupResponse(members=members))
        else:
            context.reply(LeaveGroupResponse(error_code=members[0].error_code))

    index = coordinators.group_partition(request.group_id)
    coordinators.groups.write(index, lambda shard: shard.members.leave(request), done)
    return DEFERRED
