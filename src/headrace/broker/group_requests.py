"""Runs requests on the group coordinators of this broker.

- `run_member_operation`, for JoinGroup and SyncGroup: the group sends the response, possibly much later.
- `run_group_operations`, for requests about several groups (DescribeGroups, DeleteGroups, OffsetFetch): the groups may
  be in different partitions of the offsets topic, and the response waits for all of them.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.broker.coordinators import Coordinators
from headrace.broker.yielding import ITEMS_PER_TURN
from headrace.common.errors import KafkaError
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResponse, CoordinatorResult

_logger = logging.getLogger(__name__)

T = TypeVar("T")


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
    group_ids: Sequence[str],
    operation: Callable[[GroupCoordinatorShard, str], CoordinatorResult[T]],
    error_result: Callable[[str, KafkaError], T],
    done: Callable[[list[T]], None],
) -> None:
    """Runs an operation for each group and calls `done` with all results, in the order of `group_ids`."""
    results: dict[int, T] = {}

    def run(position: int, group_id: str) -> None:
        def finish(result: CoordinatorResponse[T]) -> None:
            try:
                results[position] = result.result()
            except KafkaError as error:
                results[position] = error_result(group_id, error)
            if len(results) == len(group_ids):
                done([results[index] for index in range(len(group_ids))])

        partition = coordinators.group_partition(group_id)
        coordinators.groups.write(partition, lambda shard: operation(shard, group_id), finish)

    def run_from(first: int) -> None:
        for position, group_id in enumerate(group_ids[first : first + ITEMS_PER_TURN], first):
            run(position, group_id)
        if first + ITEMS_PER_TURN < len(group_ids):
            asyncio.get_running_loop().call_soon(run_from, first + ITEMS_PER_TURN)

    if not group_ids:
        done([])
    run_from(0)
