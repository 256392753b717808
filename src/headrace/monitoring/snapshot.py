"""What a broker or a console knows at one moment, as plain values that another thread can read."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Distribution:
    """How long requests took: since the start, and the quantiles of the last minute. In milliseconds."""

    count: int
    total_ms: float
    quantiles: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class RequestStats:
    """The requests of one API."""

    count: int
    total: Distribution
    """From the arrival of the request until its response was sent."""
    local: Distribution
    """The time in which the broker worked on it."""
    remote: Distribution
    """The time in which it waited: for data, for in-sync replicas, for members of a group."""


@dataclass(frozen=True, slots=True)
class LogStats:
    """The log of one partition on this broker."""

    topic: str
    partition: int
    size_bytes: int
    segments: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """One partition of the cluster."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int = -1
    """-1: unknown, as is the next one."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    min_isr: int = 1

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def is_leader_preferred(self) -> bool:
        return bool(self.replicas) and self.leader == self.replicas[0]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A committed offset of a group."""

    topic: str
    partition: int
    offset: int
    lag: int
    """-1: unknown, because the end of the partition is unknown."""
    lag_seconds: float | None
    """How long ago the partition ended at the committed offset. None: not known yet."""


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One consumer group."""

    group_id: str
    state: str
    members: int
    offsets: tuple[GroupOffset, ...]


@dataclass(frozen=True, slots=True)
class ControllerStats:
    """What the active controller knows."""

    topics: int
    partitions: int
    offline_partitions: int
    preferred_replica_imbalance: int
    active_brokers: int
    topics_to_delete: int


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """The replicas of a broker."""

    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    offline: int = 0
    reassigning: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionStats:
    """The connections of a broker."""

    open_by_listener: Mapping[str, int]
    accepted: int
    rejected: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class LoopStats:
    """How busy the broker's event loop is, and what the garbage collector costs."""

    lag_seconds: float
    """How late a timer was, at most, in the last seconds."""
    gc_pause_seconds: float
    """The sum of all pauses."""
    gc_max_pause_seconds: float
    """The longest pause in the last seconds."""


@dataclass(frozen=True, slots=True)
class ClientMetric:
    """A number that a client has pushed, under its own name."""

    client_id: str
    client_instance_id: str
    software: str
    name: str
    attributes: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """One broker."""

    node_id: int
    cluster_id: str
    version: str
    state: int
    is_controller: bool
    brokers: Mapping[int, str]
    """The live brokers of the cluster with their addresses."""
    controller: ControllerStats | None
    """None unless this broker is the active controller."""
    replicas: ReplicaStats
    traffic: Mapping[str, int]
    traffic_by_topic: Mapping[str, Mapping[str, int]]
    requests: Mapping[str, RequestStats]
    refused_requests: int
    purgatories: Mapping[str, int]
    connections: ConnectionStats
    logs: tuple[LogStats, ...]
    partitions: tuple[PartitionStats, ...]
    """The partitions that this broker leads."""
    groups: tuple[GroupStats, ...]
    """The groups whose coordinator is this broker."""
    client_metrics: tuple[ClientMetric, ...]
    """The metrics that clients have pushed to this broker (KIP-714)."""
    offline_log_directories: int
    fetch_sessions: int
    loop: LoopStats
    other: Mapping[str, float] = field(default_factory=dict)
    """Metrics under Headrace's own names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """A cluster as a client sees it."""

    brokers: Mapping[int, str]
    partitions: tuple[PartitionStats, ...]
    groups: tuple[GroupStats, ...]
