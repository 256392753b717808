"""Partitioners: choose the partition of records that do not specify one.

- Built-in (compiled in `_send`): the partition of a record with a key is the murmur2 hash of the key modulo the number
  of partitions, as in Java's client, confluent-kafka's `murmur2` and kafka-python. Records without a key go to the
  topic's sticky partition.
- Sticky (KIP-794): all records without keys go to one partition until it has received 16 KB (or `batch.size`, if that
  is less). The next batch goes to another partition. The choice is random, weighted by queue length:

      queued batches     0   3   1          longest + 1 = 4
      weight             4   1   3          4 - queued
      cumulative         4   5   8          a random number below 8, and the first value above it

  Partitions of brokers that accepted no batch for `partitioner.availability.timeout.ms` are excluded.
- Round robin, or a user's function: `partitioner(key, all_partitions, available_partitions) -> partition`, as in
  kafka-python. `available_partitions` are the partitions with a leader.
"""

import bisect
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from headrace.common.errors import ConfigError
from headrace.common.ids import Random
from headrace.records import partition_for_key

__all__ = ["Loads", "Murmur2Partitioner", "Partitioner", "RoundRobinPartitioner", "choose", "partitioner_for", "weigh"]

Partitioner: TypeAlias = Callable[[bytes | None, Sequence[int], Sequence[int]], int]


class Loads(NamedTuple):
    """Partitions with the cumulative weights of their random choice."""

    partitions: tuple[int, ...]
    cumulative: tuple[int, ...]


def weigh(queued: Sequence[tuple[int, int]]) -> Loads | None:
    """Returns weights from pairs of partition and queued batches, or None if all weights are equal."""
    if len(queued) < 2 or len({count for _, count in queued}) == 1:
        return None
    max_weight = max(count for _, count in queued) + 1
    weights = itertools.accumulate(max_weight - count for _, count in queued)
    return Loads(tuple(partition for partition, _ in queued), tuple(weights))


def choose(random: Random, partition_count: int, available: Sequence[int], loads: Loads | None) -> int:
    """Returns the next sticky partition."""
    if loads is not None:
        return loads.partitions[bisect.bisect_right(loads.cumulative, random.randrange(loads.cumulative[-1]))]
    if available:
        return available[random.randrange(len(available))]
    return random.randrange(partition_count)


class RoundRobinPartitioner:
    """Chooses the partitions in turn, whatever the key. Threads share one counter."""

    def __init__(self) -> None:
        self._counter = itertools.count()

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:  # noqa: ARG002
        candidates = available or all_partitions
        return candidates[next(self._counter) % len(candidates)]


class Murmur2Partitioner:
    """The built-in partitioner as a callable, for use in other partitioners. Spreads records without a key in turn."""

    def __init__(self) -> None:
        self._spread = RoundRobinPartitioner()

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        if key is None:
            return self._spread(key, all_partitions, available)
        return all_partitions[partition_for_key(key, len(all_partitions))]


_BUILT_IN = ("default", "murmur2", "murmur2_random", "sticky")


def partitioner_for(config: object) -> Partitioner | None:
    """Returns the partitioner of the config `partitioner`, or None for the built-in one."""
    if config is None or (isinstance(config, str) and config in _BUILT_IN):
        return None
    if config == "round_robin":
        return RoundRobinPartitioner()
    if callable(config):
        return config
    expected = ", ".join((*_BUILT_IN, "round_robin"))
    raise ConfigError(f"partitioner={config!r} is not a valid value: expected one of {expected}, or a callable")
