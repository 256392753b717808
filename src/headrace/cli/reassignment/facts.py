"""What `headrace reassign-partitions` reads from the cluster: replicas and their sizes."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from headrace.cli.reassignment.plan import Move
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin

Sizes: TypeAlias = Mapping[tuple[TopicPartition, int], int]
"""The size of each replica in bytes, by partition and broker."""


def current_replicas(admin: "Admin", tps: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the replicas of the partitions that exist."""
    wanted = set(tps)
    topics = admin.describe_topics(sorted({tp.topic for tp in wanted}), raise_errors=False)
    return {
        tp: partition.replicas
        for name, topic in topics.items()
        for partition in topic.partitions
        if (tp := TopicPartition(str(name), partition.partition)) in wanted
    }


def all_replicas(admin: "Admin") -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the replicas of all partitions of the cluster."""
    return {
        TopicPartition(topic.name, partition.partition): partition.replicas
        for topic in admin.describe_topics(raise_errors=False).values()
        for partition in topic.partitions
    }


def replica_sizes(admin: "Admin", moves: Mapping[TopicPartition, Move]) -> Sizes:
    """Returns the sizes of the moving replicas on running brokers."""
    partitions: dict[str, list[int]] = {}
    for tp in moves:
        partitions.setdefault(tp.topic, []).append(tp.partition)
    involved = {broker for move in moves.values() for broker in (*move.sources, *move.destinations)}
    running = {broker.id for broker in admin.describe_cluster().brokers}
    return {
        (tp, broker): replica.size
        for broker, directories in admin.describe_log_dirs(partitions, brokers=sorted(involved & running)).items()
        for directory in directories
        for tp, replica in directory.replicas.items()
        if not replica.is_future
    }
