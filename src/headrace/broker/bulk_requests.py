"""Requests that name several things, perhaps very many: others are served in between.

Of several groups each is asked of its own coordinator, and the reply waits for all.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from headrace.common.errors import KafkaError
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResponse, CoordinatorResult

if TYPE_CHECKING:
    from headrace.broker.server import Broker

T = TypeVar("T")

_AT_ONCE = 500


async def give_way(done: int) -> None:
    """To be called after each of many things, with how many are done: now and then it lets others have their turn."""
    if done % _AT_ONCE == 0:
        await asyncio.sleep(0)


def ask_shards(
    broker: "Broker",
    group_ids: Sequence[str],
    operation: Callable[[GroupCoordinatorShard, str], CoordinatorResult[T]],
    failed: Callable[[str, KafkaError], T],
    done: Callable[[list[T]], None],
) -> None:
    """Runs an operation for each group; `done` gets what came of them, in the order that they were named."""
    found: dict[int, T] = {}

    def ask(place: int, group_id: str) -> None:
        def finish(outcome: CoordinatorResponse[T]) -> None:
            try:
                found[place] = outcome.result()
            except KafkaError as error:
                found[place] = failed(group_id, error)
            if len(found) == len(group_ids):
                done([found[each] for each in range(len(group_ids))])

        index = broker.coordinators.group_partition(group_id)
        broker.coordinators.groups.write(index, lambda shard: operation(shard, group_id), finish)

    def ask_some(first: int) -> None:
        for place, group_id in enumerate(group_ids[first : first + _AT_ONCE], first):
            ask(place, group_id)
        if first + _AT_ONCE < len(group_ids):
            asyncio.get_running_loop().call_soon(ask_some, first + _AT_ONCE)

    if not group_ids:
        done([])
    ask_some(0)
