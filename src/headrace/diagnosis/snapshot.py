"""What the checks get of a cluster, and what they return. Plain values: checks need no broker."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from headrace.client.admin.types import (
    ClusterDescription,
    LogDirDescription,
    OngoingReassignment,
    PartitionDescription,
    TopicDescription,
    TransactionDescription,
)
from headrace.common.types import TopicPartition

Configs: TypeAlias = Mapping[str, str | None]

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


class Severity(Enum):
    """How urgent a finding is."""

    ERROR = "error"
    """Data or availability is lost already, or will be with the next failure."""
    WARNING = "warning"
    """Something works, but not as it should."""
    NOTE = "note"
    """A choice that may be intended."""


@dataclass(frozen=True)
class Finding:
    """One problem, in sentences for an operator."""

    check: str
    severity: Severity
    problem: str
    fix: str
    items: tuple[str, ...] = ()
    """All partitions, groups or brokers that it concerns."""


@dataclass(frozen=True)
class Limits:
    """The values from which on something counts as a problem."""

    max_lag_ms: int = 300_000
    max_clock_skew_ms: int = 1_000
    max_skew: float = 1.5
    """The share of a broker or disk, relative to the average."""
    min_free: float = 0.1
    """The free part of a volume."""


@dataclass(frozen=True)
class PartitionProgress:
    """How far a group has read one partition."""

    committed: int
    start: int
    end: int
    due: int
    """The offset of the first record that is younger than `max_lag_ms`. The group should have read all before it."""


@dataclass(frozen=True)
class GroupProgress:
    """A group and how far it has read."""

    group_id: str
    state: str
    partitions: Mapping[TopicPartition, PartitionProgress]


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that is open in a partition, but that no coordinator knows."""

    tp: TopicPartition
    producer_id: int
    start_offset: int
    last_timestamp_ms: int


@dataclass(frozen=True)
class LatestTimestamp:
    """The latest timestamp in a partition, read some time after its end offset.

    If `offset` is not below `end_before`, the record was appended between the two reads.
    """

    tp: TopicPartition
    leader: int
    is_broker_time: bool
    """The leader's clock set the timestamp, not a producer's."""
    read_from_ms: int
    read_until_ms: int
    end_before: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A cluster at one moment."""

    now_ms: int
    cluster: ClusterDescription
    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    reassignments: Mapping[TopicPartition, OngoingReassignment] = field(default_factory=dict)
    unreachable: Mapping[int, str] = field(default_factory=dict)
    """The brokers that this machine cannot reach, with the reason."""
    api_versions: Mapping[int, Mapping[int, range]] = field(default_factory=dict)
    broker_configs: Mapping[int, Configs] = field(default_factory=dict)
    topic_configs: Mapping[str, Configs] = field(default_factory=dict)
    log_dirs: Mapping[int, Sequence[LogDirDescription]] = field(default_factory=dict)
    groups: Sequence[GroupProgress] = ()
    unknown_transactions: Sequence[OpenTransaction] = ()
    transactions: Sequence[TransactionDescription] = ()
    """The transactions that are open or prepared, as their coordinators know them."""
    timestamps: Sequence[LatestTimestamp] = ()
    not_inspected: Mapping[str, str] = field(default_factory=dict)
    """The parts of the cluster that could not be read, with the reason."""

    @property
    def live(self) -> frozenset[int]:
        """The ids of the brokers in the cluster."""
        return frozenset(broker.id for broker in self.cluster.brokers)

    def partitions(self) -> Iterable[tuple[TopicPartition, PartitionDescription]]:
        for name, topic in sorted(self.topics.items()):
            for partition in topic.partitions:
                yield TopicPartition(name, partition.partition), partition

    def is_adding(self, tp: TopicPartition, replica: int) -> bool:
        """Returns True if a reassignment adds a replica: it is expected not to be in sync yet."""
        reassignment = self.reassignments.get(tp)
        return reassignment is not None and replica in reassignment.adding_replicas

    def is_offline(self, partition: PartitionDescription) -> bool:
        return partition.leader not in self.live

    def topic_config(self, topic: str, key: str) -> str | None:
        return self.topic_configs.get(topic, {}).get(key)


Check: TypeAlias = Callable[[Snapshot, Limits], Iterable[Finding]]


def number(text: str | None) -> int | None:
    """Returns the value of a numeric config, or None if it is missing."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Formats a number of things: `1 partition`, `2 partitions`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def names(values: Iterable[object]) -> str:
    """Joins values as in a sentence: `1, 2 and 3`."""
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}" if texts else ""


def brokers(ids: Iterable[int]) -> str:
    """Names brokers in a sentence: `broker 1`, `brokers 1 and 2`."""
    ordered = sorted(ids)
    return f"broker{'s' if len(ordered) != 1 else ''} {names(ordered)}"


def texts(tps: Iterable[TopicPartition]) -> tuple[str, ...]:
    return tuple(f"{tp.topic}-{tp.partition}" for tp in tps)


def duration(milliseconds: float) -> str:
    """Formats a duration: `250 ms`, `3.5 s`, `12 min`, `5 h`, `2 days`."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def in_bytes(size: float) -> str:
    """Formats a size: 1.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
