"""The state of a cluster as the collector last read it. Plain values, no I/O.

There is one `Snapshot` for each cluster. The collector updates it in place, without awaiting in between, so a reader
that does not await either sees a consistent state. It is made for many topics: partitions are tuples and arrays.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.client.admin.types import (
    ClusterDescription,
    GroupDescription,
    OngoingReassignment,
    TransactionDescription,
)
from headrace.common.types import TopicPartition

UNKNOWN = -1


class PartitionState(NamedTuple):
    """A partition's leader and replicas. Equal states are one object."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(slots=True, eq=False)
class TopicState:
    """A topic. The arrays have an element per partition; -1 stands for unknown."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionState, ...]
    starts: "array[int]"
    ends: "array[int]"
    rates: "array[float]"
    """Records per second."""
    sizes: "array[int]"
    """The size of the leader's log."""
    size_bytes: int = UNKNOWN
    """The size of all replicas."""
    messages_in: float | None = None
    min_isr: int | None = None

    @property
    def records(self) -> int:
        """The records between the start and the end of all partitions whose offsets are known."""
        return sum(end - max(start, 0) for start, end in zip(self.starts, self.ends, strict=True) if end >= 0)

    @property
    def under_replicated(self) -> int:
        return sum(partition.is_under_replicated for partition in self.partitions)

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)

    def end(self, partition: int) -> int | None:
        return self.ends[partition] if partition < len(self.ends) and self.ends[partition] >= 0 else None

    def start(self, partition: int) -> int | None:
        return self.starts[partition] if partition < len(self.starts) and self.starts[partition] >= 0 else None


@dataclass(slots=True, eq=False)
class GroupPartition:
    """How far a group has read a partition."""

    committed: int
    lag: int | None = None
    lag_seconds: float | None = None
    consumed: float | None = None
    """Records per second."""
    metadata: str = ""


@dataclass(slots=True, eq=False)
class GroupState:
    """A group, its members and its progress."""

    name: str
    state: str
    type: str = ""
    protocol_type: str = ""
    description: GroupDescription | None = None
    partitions: dict[TopicPartition, GroupPartition] = field(default_factory=dict)
    lag: int | None = None
    lag_seconds: float | None = None
    consumed: float | None = None
    drain_seconds: float | None = None
    error: str | None = None

    @property
    def members(self) -> int | None:
        return None if self.description is None else len(self.description.members)

    @property
    def topics(self) -> set[str]:
        found = {tp.topic for tp in self.partitions}
        if self.description is not None:
            for member in self.description.members:
                found.update(member.subscription)
                found.update(tp.topic for tp in member.assignment)
        return found


@dataclass(slots=True, eq=False)
class LogDirState:
    """A log directory of a broker."""

    path: str
    size_bytes: int
    replicas: int
    total_bytes: int = UNKNOWN
    usable_bytes: int = UNKNOWN
    cordoned: bool = False
    error: str | None = None
    largest: tuple[tuple[str, int, int], ...] = ()
    """Topic, partition and size of the largest replicas."""


@dataclass(slots=True, eq=False)
class BrokerState:
    """A broker: one of the cluster, or one that is missing but that has replicas."""

    id: int
    host: str | None = None
    port: int | None = None
    rack: str | None = None
    error: str | None = None
    leaders: int = 0
    replicas: int = 0
    log_dirs: tuple[LogDirState, ...] | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    messages_in: float | None = None
    connections: int | None = None
    version: str | None = None
    metrics_error: str | None = None

    @property
    def size_bytes(self) -> int | None:
        return None if self.log_dirs is None else sum(log_dir.size_bytes for log_dir in self.log_dirs)


@dataclass(eq=False)
class Snapshot:
    """A cluster."""

    time_ms: int
    cluster: ClusterDescription
    topics: dict[str, TopicState] = field(default_factory=dict)
    groups: dict[str, GroupState] = field(default_factory=dict)
    brokers: dict[int, BrokerState] = field(default_factory=dict)
    reassignments: dict[TopicPartition, OngoingReassignment] = field(default_factory=dict)
    consuming: dict[str, set[str]] = field(default_factory=dict)
    """The groups by topic."""
    transactions: tuple[TransactionDescription, ...] = ()
    messages_in: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    generation: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("topics", "groups", "brokers"), 0))
    """Counts changes, by page."""
    not_read: dict[str, str] = field(default_factory=dict)
    """The parts of the cluster that could not be read, with the reason."""

    @property
    def live(self) -> frozenset[int]:
        return frozenset(broker.id for broker in self.cluster.brokers)

    @property
    def missing(self) -> list[int]:
        """The brokers that have replicas but are not in the cluster."""
        return sorted(self.brokers.keys() - self.live)

    def is_offline(self, partition: PartitionState) -> bool:
        return partition.leader not in self.brokers or partition.leader in self.missing

    def partitions(self) -> Iterable[tuple[TopicPartition, PartitionState]]:
        for topic in self.topics.values():
            for number, partition in enumerate(topic.partitions):
                yield TopicPartition(topic.name, number), partition
