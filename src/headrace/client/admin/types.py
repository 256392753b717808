"""The types of the admin client's arguments and results. Names follow kafka-python where it has them.

The result of one of several items has an `error`: None, or the error of that item.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TypeVar

from headrace.client.errors import IllegalArgumentError
from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import KafkaError
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.net.nodes import Node

__all__ = [
    "AbortTransactionSpec",
    "AlterConfigOp",
    "AlteredConfig",
    "AlteredLogDir",
    "AlteredOffset",
    "AlteredReassignment",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedPartitions",
    "CreatedTopic",
    "DeletedGroup",
    "DeletedRecords",
    "DeletedTopic",
    "ElectedLeader",
    "ElectionType",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupOffsets",
    "IsolationLevel",
    "ListedOffset",
    "LogDirDescription",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OngoingReassignment",
    "PartitionDescription",
    "PartitionProducers",
    "ProducerState",
    "RemovedMember",
    "ReplicaInfo",
    "ReplicaLogDirs",
    "Results",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]

K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound=IntEnum)


class Results(dict[K, V]):
    """One result per requested item. Each has an `error`, which is None on success."""

    @property
    def errors(self) -> dict[K, KafkaError]:
        """The errors by item."""
        errors: dict[K, KafkaError] = {}
        for item, result in self.items():
            error = getattr(result, "error", None)
            if error is not None:
                errors[item] = error
        return errors

    def raise_errors(self) -> None:
        """Raises the first error, if any, with `error.results` set to these results."""
        for error in self.errors.values():
            error.results = self
            raise error


def _check_type(value: object, field_name: str, kind: type, optional: bool = False) -> None:
    """Checks the type of a field, so that a wrong argument fails where it is written."""
    actual = getattr(value, field_name)
    if not (isinstance(actual, kind) and not isinstance(actual, bool)) and not (optional and actual is None):
        raise TypeError(
            f"{type(value).__name__}: {field_name} must be of type {kind.__name__}, "
            f"not {type(actual).__name__} {actual!r}"
        )


def to_enum(kind: type[E], value: "E | str | int", name: str) -> E:
    """Returns a member of an enum by its name, in any case, or by its number."""
    try:
        return kind[value.upper()] if isinstance(value, str) else kind(value)
    except (KeyError, ValueError):
        names = ", ".join(member.name.lower() for member in kind if member.name != "UNKNOWN")
        raise IllegalArgumentError(f"{name}={value!r} is not valid: expected {names}") from None


# ---- topics


@dataclass(frozen=True)
class NewTopic:
    """A topic to create. -1 stands for the broker's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    """The replicas of each partition, in place of the two numbers."""
    topic_configs: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        _check_type(self, "name", str)
        _check_type(self, "num_partitions", int)
        _check_type(self, "replication_factor", int)
        _check_type(self, "replica_assignments", Mapping, optional=True)
        _check_type(self, "topic_configs", Mapping, optional=True)


@dataclass(frozen=True)
class NewPartitions:
    """The total number of partitions that a topic is to have, and the replicas of the new ones."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        _check_type(self, "total_count", int)


@dataclass(frozen=True)
class CreatedTopic:
    """The result of creating a topic."""

    name: str
    topic_id: Uuid = ZERO_UUID
    num_partitions: int = -1
    """-1 from brokers before Kafka 2.4."""
    replication_factor: int = -1
    configs: "Mapping[str, ConfigEntry]" = field(default_factory=dict)
    error: KafkaError | None = None


@dataclass(frozen=True)
class DeletedTopic:
    """The result of deleting a topic."""

    name: str | None
    topic_id: Uuid = ZERO_UUID
    error: KafkaError | None = None


@dataclass(frozen=True)
class CreatedPartitions:
    """The result of adding partitions to a topic."""

    topic: str
    error: KafkaError | None = None


@dataclass(frozen=True)
class PartitionDescription:
    """A partition's leader and replicas."""

    partition: int
    leader: int
    """-1 without a leader."""
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    eligible_leaders: tuple[int, ...] | None = None
    """Eligible leader replicas outside the ISR (KIP-966), or None if the broker does not return them."""
    last_known_eligible_leaders: tuple[int, ...] | None = None
    error: KafkaError | None = None


@dataclass(frozen=True)
class TopicDescription:
    """A topic and its partitions."""

    name: str
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    partitions: tuple[PartitionDescription, ...] = ()
    authorized_operations: frozenset[int] | None = None
    """The numbers of the ACL operations that this client may perform, or None if they were not requested."""
    error: KafkaError | None = None


# ---- partitions


class OffsetSpec(IntEnum):
    """Special offsets. Any other number is a timestamp in milliseconds."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    """The offset of the record with the latest timestamp."""
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class IsolationLevel(IntEnum):
    """Whether offsets beyond the last stable offset are visible."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True)
class ListedOffset:
    """An offset of a partition."""

    offset: int
    """-1 if there is no such offset: all records are older than the timestamp."""
    timestamp: int = -1
    leader_epoch: int = -1
    error: KafkaError | None = None


@dataclass(frozen=True)
class DeletedRecords:
    """The result of deleting records of a partition."""

    low_watermark: int
    """The first offset that remains on all replicas."""
    error: KafkaError | None = None


@dataclass(frozen=True)
class ProducerState:
    """An active producer of a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
    """-1 without an open transaction on this partition."""


@dataclass(frozen=True)
class PartitionProducers:
    """The active producers of a partition."""

    producers: tuple[ProducerState, ...] = ()
    error: KafkaError | None = None


# ---- configuration


class ConfigResourceType(IntEnum):
    """The kinds of resources that have a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The origin of a value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class AlterConfigOp(IntEnum):
    """The operations of `alter_configs`."""

    SET = 0
    DELETE = 1
    """Resets the key to its default."""
    APPEND = 2
    """Adds values to a list."""
    SUBTRACT = 3
    """Removes values from a list."""


@dataclass(frozen=True)
class ConfigResource:
    """A resource that has a configuration.

    `configs`: the keys to describe (None: all), or the values to set by key. A value may be a pair of an AlterConfigOp
    and a value. None resets the key to its default.
    """

    resource_type: ConfigResourceType | str | int
    name: str
    configs: Mapping[str, object] | Sequence[str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        _check_type(self, "name", str)
        object.__setattr__(self, "resource_type", to_enum(ConfigResourceType, self.resource_type, "resource_type"))


@dataclass(frozen=True)
class ConfigSynonym:
    """A value that a key would have from another source."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True)
class ConfigEntry:
    """A key and its value."""

    name: str
    value: str | None
    """None if it is sensitive or not set."""
    source: ConfigSource = ConfigSource.UNKNOWN
    is_read_only: bool = False
    is_sensitive: bool = False
    type: str = "UNKNOWN"
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True)
class ConfigDescription:
    """The configuration of a resource."""

    entries: Mapping[str, ConfigEntry] = field(default_factory=dict)
    error: KafkaError | None = None

    def __getitem__(self, key: str) -> str | None:
        return self.entries[key].value


@dataclass(frozen=True)
class AlteredConfig:
    """The result of changing a resource's configuration."""

    error: KafkaError | None = None


# ---- the cluster


@dataclass(frozen=True)
class BrokerDescription:
    """A broker of the cluster."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True)
class ClusterDescription:
    """The cluster and its brokers."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: frozenset[int] | None = None

    @property
    def controller(self) -> BrokerDescription | None:
        return next((broker for broker in self.brokers if broker.id == self.controller_id), None)


@dataclass(frozen=True)
class ReplicaInfo:
    """A replica in a log directory."""

    size: int
    offset_lag: int
    is_future: bool = False
    """Whether it is being moved here from another log directory."""


@dataclass(frozen=True)
class LogDirDescription:
    """A log directory of a broker."""

    broker_id: int
    path: str
    replicas: Mapping[TopicPartition, ReplicaInfo] = field(default_factory=dict)
    total_bytes: int = -1
    """The size of its volume, or -1 if the broker does not return it."""
    usable_bytes: int = -1
    is_cordoned: bool = False
    error: KafkaError | None = None


@dataclass(frozen=True)
class AlteredLogDir:
    """The result of starting, or cancelling, the move of a replica to another log directory."""

    error: KafkaError | None = None


@dataclass(frozen=True)
class ReplicaLogDirs:
    """The log directory of a replica, and the one to which it is being moved. None and -1: there is none."""

    current_path: str | None = None
    current_offset_lag: int = -1
    """How far it is behind the high watermark."""
    future_path: str | None = None
    future_offset_lag: int = -1
    """How far the copy is behind the current replica."""


# ---- placement of partitions


class ElectionType(IntEnum):
    """Which replica becomes leader."""

    PREFERRED = 0
    """The first replica, if it is in sync."""
    UNCLEAN = 1
    """Of a partition without leader: an in-sync replica, or else any live one, which may lack acknowledged records."""


@dataclass(frozen=True)
class AlteredReassignment:
    """The result of starting or cancelling a reassignment."""

    error: KafkaError | None = None


@dataclass(frozen=True)
class OngoingReassignment:
    """A partition that is being moved to other brokers."""

    replicas: tuple[int, ...]
    """The target replicas, then the ones to be removed."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


@dataclass(frozen=True)
class ElectedLeader:
    """The result of a leader election."""

    error: KafkaError | None = None


# ---- groups


@dataclass(frozen=True)
class GroupListing:
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: str = ""
    """Empty from brokers before Kafka 2.6."""
    type: str = ""


@dataclass(frozen=True)
class MemberDescription:
    """A member of a group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] = ()
    subscription: tuple[str, ...] = ()
    """The topics. Empty while the group rebalances, and for groups that are not consumer groups."""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@dataclass(frozen=True)
class GroupDescription:
    """A group and its members."""

    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    """The assignor, once the group is stable."""
    members: tuple[MemberDescription, ...] = ()
    coordinator: Node | None = None
    authorized_operations: frozenset[int] | None = None
    error: KafkaError | None = None


@dataclass(frozen=True)
class DeletedGroup:
    """The result of deleting a group."""

    error: KafkaError | None = None


@dataclass(frozen=True)
class GroupOffsets:
    """The committed offsets of a group, without partitions that have none."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)
    error: KafkaError | None = None

    def __getitem__(self, tp: TopicPartition) -> OffsetAndMetadata:
        return self.offsets[tp]


@dataclass(frozen=True)
class AlteredOffset:
    """The result of changing a committed offset."""

    error: KafkaError | None = None


@dataclass(frozen=True)
class MemberToRemove:
    """A member to remove, by member id or group instance id."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class RemovedMember:
    """The result of removing a member."""

    error: KafkaError | None = None


# ---- transactions


class TransactionState(Enum):
    """The states of a transaction, with Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


@dataclass(frozen=True)
class TransactionListing:
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True)
class TransactionDescription:
    """A transactional id and its transaction."""

    transactional_id: str
    state: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    transaction_timeout_ms: int = -1
    transaction_start_time_ms: int | None = None
    """None without an open transaction."""
    partitions: frozenset[TopicPartition] = frozenset()
    coordinator_id: int = -1
    error: KafkaError | None = None


@dataclass(frozen=True)
class AbortTransactionSpec:
    """An open transaction on one partition, as `describe_producers` returns it."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = 0


@dataclass(frozen=True)
class FencedProducer:
    """The new producer id and epoch, which fence older producers."""

    producer_id: int = -1
    producer_epoch: int = -1
    error: KafkaError | None = None
