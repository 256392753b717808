"""LeaveGroup: members leave, so that the group need not wait for their session timeouts.

Version notes (0 to 5):
- 3 has several members, and static members by instance id (KIP-345)
- 4 is flexible
- 5 has the member's reason (KIP-800)
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

_FIRST_WITH_MEMBERS = 3


@api(ApiKey.LEAVE_GROUP, 0, 5)
def handle(request: LeaveGroupRequest, context: RequestContext, *, coordinators: Coordinators) -> HandlerResult:
    has_members = context.api_version >= _FIRST_WITH_MEMBERS
    if not has_members:
        request.members = [MemberIdentity(member_id=request.member_id)]

    def done(response: CoordinatorResponse[list[MemberResponse]]) -> None:
        try:
            members = response.result()
        except UnknownMemberIdError as error:  # the group does not exist
            members = [
                MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error.code
                )
                for member in request.members
            ]
        except KafkaError as error:
            context.reply(LeaveGroupResponse(error_code=error.code))
            return
        if has_members:
            context.reply(LeaveGroupResponse(members=members))
        else:
            context.reply(LeaveGroupResponse(error_code=members[0].error_code))

    partition = coordinators.group_partition(request.group_id)
    coordinators.groups.write(partition, lambda shard: shard.members.leave(request), done)
    return DEFERRED
