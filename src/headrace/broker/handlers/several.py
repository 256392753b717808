"""Requests that name several groups: each is asked of its own coordinator, and the reply waits for all."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from headrace.common.errors import KafkaError
from headrace.coordinator.group.shard import GroupShard
from headrace.coordinator.runtime import Outcome, Result

if TYPE_CHECKING:
    from headrace.broker.server import Broker

T = TypeVar("T")


def ask_shards(
    broker: "Broker",
    group_ids: Sequence[str],
    operation: Callable[[GroupShard, str], Result[T]],
    failed: Callable[[str, KafkaError], T],
    done: Callable[[list[T]], None],
) -> None:
    """Runs an operation for each group; `done` gets what came of them, in the order that they were named."""
    found: dict[int, T] = {}

    def ask(place: int, group_id: str) -> None:
        def finish(outcome: Outcome[T]) -> None:
            try:
                found[place] = outcome.result()
            except KafkaError as error:
                found[place] = failed(group_id, error)
            if len(found) == len(group_ids):
                done([found[each] for each in range(len(group_ids))])

        index = broker.coordinators.group_partition(group_id)
        broker.coordinators.groups.write(index, lambda shard: operation(shard, group_id), finish)

    if not group_ids:
        done([])
    for place, group_id in enumerate(group_ids):
        ask(place, group_id)
