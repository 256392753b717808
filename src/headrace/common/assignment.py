"""Assigns the replicas of partitions to brokers: Kafka's round robin, for new topics and for plans of reassignments.

The leaders are assigned round robin, starting at a random broker. The followers are placed at a shift that increases
with each round, so that the followers of one broker's partitions are spread over all other brokers. Example with five
brokers, three replicas, start 0 and shift 0:

    broker     0    1    2    3    4
    leader     p0   p1   p2   p3   p4
               p5   p6   p7   p8   p9
    second     p4   p0   p1   p2   p3
               p8   p9   p5   p6   p7      shift 1
    third      p3   p4   p0   p1   p2
               p7   p8   p9   p5   p6

With racks the broker list alternates between racks (0, 3, 1, 5, 4, 2 for racks a: 0 5, b: 3 4, c: 1 2). A broker is
skipped while its rack already has a replica and another rack has none.
"""

from collections.abc import Mapping, Sequence

from headrace.common.errors import InvalidPartitionsError, InvalidReplicationFactorError
from headrace.common.ids import Random


def assign_replicas(
    brokers: Mapping[int, str | None],
    num_partitions: int,
    replication_factor: int,
    random: Random,
    *,
    first_partition: int = 0,
    start_index: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Returns the replicas of `num_partitions` partitions, from `first_partition` on.

    `brokers` has the rack of each broker, or None for a broker without a rack.
    `start_index` is the first position in the broker list, for partitions added to a topic. A new topic starts at a
    random position. Racks are used only if every broker has a rack.
    """
    if num_partitions <= 0:
        raise InvalidPartitionsError(
            f"Number of partitions was set to an invalid non-positive value: {num_partitions}."
        )
    if replication_factor <= 0:
        raise InvalidReplicationFactorError(
            f"Replication factor must be larger than 0, or -1 to use the default value. It is {replication_factor}."
        )
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered."
        )
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    use_racks = len(racks) == len(brokers)
    order = alternate_racks(racks) if use_racks else sorted(brokers)
    start = random.randrange(len(order)) if start_index is None else start_index
    shift = random.randrange(len(order)) if start_index is None else start_index
    assigned: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + num_partitions):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (partition + start) % len(order)
        if use_racks:
            assigned[partition] = _assign_across_racks(order, racks, first, shift, replication_factor)
        else:
            followers = (order[_follower(first, shift, step, len(order))] for step in range(replication_factor - 1))
            assigned[partition] = (order[first], *followers)
    return assigned


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Returns the brokers, alternating between racks."""
    remaining: dict[str, list[int]] = {}
    for broker in sorted(racks, reverse=True):
        remaining.setdefault(racks[broker], []).append(broker)
    order: list[int] = []
    while len(order) < len(racks):
        order += [remaining[rack].pop() for rack in sorted(remaining) if remaining[rack]]
    return order


def _follower(first: int, shift: int, step: int, count: int) -> int:
    """Returns a follower's position: never the leader's, and different for each of the first `count - 1` steps."""
    return (first + 1 + (shift + step) % (count - 1)) % count


def _assign_across_racks(
    order: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    replicas = [order[first]]
    used_racks = {racks[order[first]]}
    step = 0
    while len(replicas) < replication_factor:
        broker = order[_follower(first, shift * rack_count, step, len(order))]
        step += 1
        if broker not in replicas and (racks[broker] not in used_racks or len(used_racks) == rack_count):
            replicas.append(broker)
            used_racks.add(racks[broker])
    return tuple(replicas)
