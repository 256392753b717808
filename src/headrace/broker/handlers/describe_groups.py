"""DescribeGroups: state, members and assignments of groups.

Versions 0 to 6: 3 authorised operations (KIP-430), 4 instance ids (KIP-345), 5 flexible, 6 an error for groups that are
not there (KIP-1043); before, those were told to be Dead.
"""

from headrace.broker.authorized_operations import GROUP_OPERATIONS, NOT_ASKED_FOR
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import DEFERRED, HandlerResult, RequestContext, api
from headrace.broker.group_requests import run_group_operations
from headrace.common.errors import GroupIdNotFoundError, KafkaError, message_of
from headrace.coordinator.group.classic_group import GroupState
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResult
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

_FIRST_WITH_NOT_FOUND = 6


@api(ApiKey.DESCRIBE_GROUPS, 0, 6)
def handle(request: DescribeGroupsRequest, context: RequestContext, *, coordinators: Coordinators) -> HandlerResult:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    tells_missing = context.api_version >= _FIRST_WITH_NOT_FOUND

    def describe(shard: GroupCoordinatorShard, group_id: str) -> CoordinatorResult[DescribedGroup]:
        found = shard.describe(group_id)
        found.authorized_operations = operations
        return CoordinatorResult((), found)

    def failed(group_id: str, error: KafkaError) -> DescribedGroup:
        missing = isinstance(error, GroupIdNotFoundError)
        if missing and not tells_missing:
            return DescribedGroup(
                group_id=group_id, group_state=GroupState.DEAD.value, authorized_operations=operations
            )
        return DescribedGroup(
            group_id=group_id,
            group_state=GroupState.DEAD.value if missing else "",
            error_code=error.code,
            error_message=message_of(error),
        )

    run_group_operations(
        coordinators,
        request.groups,
        describe,
        failed,
        lambda groups: context.reply(DescribeGroupsResponse(groups=groups)),
    )
    return DEFERRED
