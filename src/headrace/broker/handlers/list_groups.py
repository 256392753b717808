"""ListGroups: the groups that this broker coordinates.

Behavior:
- Filters ignore case.
- While a partition of the offsets topic is loading, the list would be incomplete: COORDINATOR_LOAD_IN_PROGRESS.

Version notes (0 to 5):
- 3 is flexible
- 4 has states and a filter for them (KIP-518)
- 5 has types and a filter for them (KIP-848)
"""

from headrace.broker.apis import api
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_cluster, on_group, requires
from headrace.broker.rights import is_allowed, is_allowed_on_cluster
from headrace.broker.yielding import InTurns, parts
from headrace.common.errors import CoordinatorLoadInProgressError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from headrace.security.acls import Operation, ResourceType


@api(
    ApiKey.LIST_GROUPS,
    0,
    5,
    needs=requires(on_cluster(Operation.DESCRIBE) | on_group(Operation.DESCRIBE, "each group", "left out")),
)
def handle(
    request: ListGroupsRequest, context: RequestContext, *, coordinators: Coordinators
) -> InTurns[ListGroupsResponse]:
    runtime = coordinators.groups
    if runtime.is_loading():
        return ListGroupsResponse(error_code=CoordinatorLoadInProgressError.code)
    states = {state.strip().lower() for state in request.states_filter}
    types = {group_type.strip().lower() for group_type in request.types_filter}
    groups: list[ListedGroup] = []
    lists_all = is_allowed_on_cluster(context, Operation.DESCRIBE, audited=False)
    for shard in runtime.shards():
        listed = shard.list_groups(states, types)
        for part in () if lists_all else parts(listed):
            groups += [group for group in part if _may_describe(context, group.group_id)]
            if context.turn_is_over():
                yield
        if lists_all:
            groups += listed
        if context.turn_is_over():
            yield
    return ListGroupsResponse(groups=groups)


def _may_describe(context: RequestContext, group_id: str) -> bool:
    return is_allowed(context, Operation.DESCRIBE, ResourceType.GROUP, group_id, audited=False)
