"""Which partition a record goes to, if it does not say.

- Built in, compiled (`_send`): with a key, murmur2 of it as Java's client, confluent-kafka's `murmur2` and kafka-python
  compute it, modulo the number of partitions; without, the sticky partition of the topic.
- Sticky (KIP-794): all records without keys go to one partition until it has got 16 KB (or `batch.size`, if that is
  less), and with the next batch another is chosen. That is by chance, but partitions with a shorter queue are likelier:

      queued batches     0   3   1          longest + 1 = 4
      weight             4   1   3          4 - queued
      cumulative         4   5   8          a number below 8, and the first that is above it

  and those of brokers that have taken nothing for `partitioner.availability.timeout.ms` are left out.
- Round robin, or any function of yours: `partitioner(key, all_partitions, available_partitions) -> partition`, as in
  kafka-python; `available_partitions` are those that have a leader.
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
    """How likely each partition is to be chosen: cumulative weights."""

    partitions: tuple[int, ...]
    cumulative: tuple[int, ...]


def weigh(queued: Sequence[tuple[int, int]]) -> Loads | None:
    """Weights from pairs of a partition and the batches that wait for it. None if all are the same."""
    if len(queued) < 2 or len({count for _, count in queued}) == 1:
        return None
    top = max(count for _, count in queued) + 1
    weights = itertools.accumulate(top - count for _, count in queued)
    return Loads(tuple(partition for partition, _ in queued), tuple(weights))


def choose(random: Random, partition_count: int, available: Sequence[int], loads: Loads | None) -> int:
    """The next sticky partition."""
    if loads is not None:
        return loads.partitions[bisect.bisect_right(loads.cumulative, random.randrange(loads.cumulative[-1]))]
    if available:
        return available[random.randrange(len(available))]
    return random.randrange(partition_count)


class RoundRobinPartitioner:
    """One partition after the other, whatever the key. Threads share one counter."""

    def __init__(self) -> None:
        self._counter = itertools.count()

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:  # noqa: ARG002
        among = available or all_partitions
        return among[next(self._counter) % len(among)]


class Murmur2Partitioner:
    """What is built in, as a function to call from one's own: the key decides, and records without one are spread."""

    def __init__(self) -> None:
        self._spread = RoundRobinPartitioner()

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        if key is None:
            return self._spread(key, all_partitions, available)
        return all_partitions[partition_for_key(key, len(all_partitions))]


_BUILT_IN = ("default", "murmur2", "murmur2_random", "sticky")


def partitioner_for(given: object) -> Partitioner | None:
    """The partitioner that a setting names, or None for the one that is built in."""
    if given is None or (isinstance(given, str) and given in _BUILT_IN):
        return None
    if given == "round_robin":
        return RoundRobinPartitioner()
    if callable(given):
        return given
    expected = ", ".join((*_BUILT_IN, "round_robin"))
    raise ConfigError(f"partitioner={given!r} is not a valid value: expected one of {expected}, or a callable")
