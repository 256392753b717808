"""DescribeGroups: state, members and assignments of groups.

Version notes (0 to 6):
- 3 has authorized operations (KIP-430)
- 4 has instance ids (KIP-345)
- 5 is flexible
- 6 has GROUP_ID_NOT_FOUND for groups that do not exist (KIP-1043); before, their state was Dead
"""

from headrace.broker.apis import HandlerResult, api
from headrace.broker.authorized_operations import NOT_REQUESTED, authorized_operations
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.group_requests import run_group_operations
from headrace.broker.required_rights import on_group, requires
from headrace.broker.yielding import InTurns
from headrace.common.errors import GroupIdNotFoundError, KafkaError, message_of
from headrace.coordinator.group.classic_group import GroupState
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResult
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from headrace.security.acls import Operation, ResourceType

_FIRST_WITH_NOT_FOUND = 6


@api(ApiKey.DESCRIBE_GROUPS, 0, 6, needs=requires(on_group(Operation.DESCRIBE, "each group")))
def handle(
    request: DescribeGroupsRequest, context: RequestContext, *, coordinators: Coordinators
) -> InTurns[HandlerResult]:
    all_operations = request.include_authorized_operations
    has_not_found = context.api_version >= _FIRST_WITH_NOT_FOUND

    def operations_on(group_id: str) -> int:
        return authorized_operations(context, ResourceType.GROUP, group_id) if all_operations else NOT_REQUESTED

    def describe(shard: GroupCoordinatorShard, group_id: str) -> CoordinatorResult[DescribedGroup]:
        group = shard.describe(group_id)
        group.authorized_operations = operations_on(group_id)
        return CoordinatorResult((), group)

    def failed(group_id: str, error: KafkaError) -> DescribedGroup:
        missing = isinstance(error, GroupIdNotFoundError)
        if missing and not has_not_found:
            return DescribedGroup(
                group_id=group_id, group_state=GroupState.DEAD.value, authorized_operations=operations_on(group_id)
            )
        return DescribedGroup(
            group_id=group_id,
            group_state=GroupState.DEAD.value if missing else "",
            error_code=error.code,
            error_message=message_of(error),
        )

    return run_group_operations(
        coordinators,
        context,
        list(dict.fromkeys(request.groups)),  # a group can have very many members, so each is described once
        str,
        describe,
        failed,
        lambda groups: context.reply(DescribeGroupsResponse(groups=groups)),
        needed=Operation.DESCRIBE,
    )
