"""DeleteGroups: deletes groups without members, and their offsets (KIP-229).

Behavior:
- Each group succeeds or fails on its own. A group that the request names twice is in the response once.

Version notes (0 to 2): 2 is flexible.
"""

from headrace.broker.apis import HandlerResult, api
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.group_requests import run_group_operations
from headrace.broker.required_rights import on_group, requires
from headrace.broker.yielding import InTurns
from headrace.common.errors import KafkaError
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResult
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from headrace.security.acls import Operation


@api(ApiKey.DELETE_GROUPS, 0, 2, needs=requires(on_group(Operation.DELETE, "each group")))
def handle(
    request: DeleteGroupsRequest, context: RequestContext, *, coordinators: Coordinators
) -> InTurns[HandlerResult]:
    return run_group_operations(
        coordinators,
        context,
        list(dict.fromkeys(request.groups_names)),
        str,
        _delete,
        _failed,
        lambda results: context.reply(DeleteGroupsResponse(results=results)),
        needed=Operation.DELETE,
    )


def _delete(shard: GroupCoordinatorShard, group_id: str) -> CoordinatorResult[DeletableGroupResult]:
    return CoordinatorResult(shard.delete_group(group_id).records, DeletableGroupResult(group_id=group_id))


def _failed(group_id: str, error: KafkaError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error.code)
