"""ListGroups: the groups that this broker coordinates.

Versions 0 to 5: 3 flexible, 4 states and a filter by them (KIP-518), 5 types and a filter by them (KIP-848). Filters do
not heed case. While a partition of the offsets topic is being loaded, the list would have a hole:
COORDINATOR_LOAD_IN_PROGRESS.
"""

from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext, api
from headrace.common.errors import CoordinatorLoadInProgressError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@api(ApiKey.LIST_GROUPS, 0, 5)
def handle(request: ListGroupsRequest, _: RequestContext, *, coordinators: Coordinators) -> ListGroupsResponse:
    runtime = coordinators.groups
    if runtime.is_loading():
        return ListGroupsResponse(error_code=CoordinatorLoadInProgressError.code)
    states = {each.strip().lower() for each in request.states_filter}
    types = {each.strip().lower() for each in request.types_filter}
    return ListGroupsResponse(
        groups=[group for shard in runtime.shards() for group in shard.list_groups(states, types)]
    )
