"""Runs requests on the group coordinators of this broker.

- `run_member_operation`, for JoinGroup and SyncGroup: the group sends the response, possibly much later.
- `run_group_operations`, for requests with many items (groups of DescribeGroups, DeleteGroups and OffsetFetch, and the
  parts of a long list for one group): the groups may be in different partitions of the offsets topic, and the response
  waits for all of them.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.broker.apis import DEFERRED, HandlerResult
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import denied
from headrace.broker.rights import is_allowed
from headrace.broker.yielding import InTurns
from headrace.common.errors import KafkaError
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResponse, CoordinatorResult
from headrace.security.acls import Operation, ResourceType

_logger = logging.getLogger(__name__)

T = TypeVar("T")
Item = TypeVar("Item")

PARTITIONS_PER_OPERATION = 500
"""An operation on the offsets of one group is split into operations on this many partitions."""


def run_member_operation(
    coordinators: Coordinators,
    group_id: str,
    operation: Callable[[GroupCoordinatorShard, Callable[[T], None]], CoordinatorResult[None]],
    error_response: Callable[[KafkaError], T],
    reply: Callable[[T], None],
) -> None:
    """Runs an operation of a group member and calls `reply` with its response, exactly once.

    `operation` gets the shard and a function that sends the response. The group calls that function at once, or when
    the next generation or assignment is ready. If the operation cannot run or raises, `reply` gets
    `error_response(error)`.
    """
    replied = False
    accepted = False

    def reply_once(response: T) -> None:
        nonlocal replied
        if not replied:
            replied = True
            reply(response)

    def run(shard: GroupCoordinatorShard) -> CoordinatorResult[None]:
        nonlocal accepted
        result = operation(shard, reply_once)
        accepted = True
        return result

    def done(result: CoordinatorResponse[None]) -> None:
        if result.error is None:
            return
        if accepted:
            # If the write fails, the group itself responds to the members that wait for it.
            _logger.debug("Group %s: failed to write the new state: %s", group_id, result.error)
        else:
            reply_once(error_response(result.error))

    coordinators.groups.write(coordinators.group_partition(group_id), run, done)


def run_group_operations(
    coordinators: Coordinators,
    context: RequestContext,
    items: Sequence[Item],
    group_id_of: Callable[[Item], str],
    operation: Callable[[GroupCoordinatorShard, Item], CoordinatorResult[T]],
    error_result: Callable[[Item, KafkaError], T],
    done: Callable[[list[T]], None],
    needed: Operation | None = None,
) -> InTurns[HandlerResult]:
    """Runs an operation for each item and calls `done` with all results, in the order of the items.

    `needed` is the operation on the item's group that the client must be authorized for.
    """
    results: dict[int, T] = {}

    def run(position: int, item: Item) -> None:
        def finish(result: CoordinatorResponse[T]) -> None:
            # Not raised: a raised error would be in a reference cycle with its traceback, and very many of them would
            # stay until a long garbage collection.
            error = result.error
            results[position] = result.result() if error is None else error_result(item, error)
            if len(results) == len(items):
                done([results[index] for index in range(len(items))])

        group_id = group_id_of(item)
        if needed is not None and not is_allowed(context, needed, ResourceType.GROUP, group_id):
            finish(CoordinatorResponse(error=denied(ResourceType.GROUP)))
            return
        partition = coordinators.group_partition(group_id)
        coordinators.groups.write(partition, lambda shard: operation(shard, item), finish)

    for position, item in enumerate(items):
        run(position, item)
        if context.turn_is_over():
            yield
    if not items:
        done([])
    return DEFERRED
