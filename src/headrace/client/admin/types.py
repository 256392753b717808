"""What the admin client takes and returns. Names and arguments follow kafka-python where it has them.

A result for one of several items has an `error`: None, or what was wrong with that item alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TypeVar

from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import KafkaError
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.net.nodes import Node

__all__ = [
    "AbortTransactionSpec",
    "AlterConfigOp",
    "AlteredConfig",
    "AlteredOffset",
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
    "PartitionDescription",
    "PartitionProducers",
    "ProducerState",
    "RemovedMember",
    "ReplicaInfo",
    "Results",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]

K = TypeVar("K")
V = TypeVar("V")


class Results(dict[K, V]):
    """A result for each item that was asked for. Each has an `error`, which is None if all went well."""

    @property
    def errors(self) -> dict[K, KafkaError]:
        """What went wrong, by item."""
        found: dict[K, KafkaError] = {}
        for item, result in self.items():
            error = getattr(result, "error", None)
            if error is not None:
                found[item] = error
        return found

    def raise_errors(self) -> None:
        """Raises the first error there is, which has these as its `results`."""
        for error in self.errors.values():
            error.results = self
            raise error


# ---- topics


@dataclass(frozen=True)
class NewTopic:
    """A topic to create. -1 leaves a number to the broker."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    """Brokers of each partition, instead of the two numbers."""
    topic_configs: Mapping[str, object] | None = None


@dataclass(frozen=True)
class NewPartitions:
    """How many partitions a topic is to have, and where the new ones go."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True)
class CreatedTopic:
    name: str
    topic_id: Uuid = ZERO_UUID
    num_partitions: int = -1
    """-1 if the broker does not tell (before Kafka 2.4)."""
    replication_factor: int = -1
    configs: "Mapping[str, ConfigEntry]" = field(default_factory=dict)
    error: KafkaError | None = None


@dataclass(frozen=True)
class DeletedTopic:
    name: str | None
    topic_id: Uuid = ZERO_UUID
    error: KafkaError | None = None


@dataclass(frozen=True)
class CreatedPartitions:
    topic: str
    error: KafkaError | None = None


@dataclass(frozen=True)
class PartitionDescription:
    partition: int
    leader: int
    """-1 if there is none."""
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    eligible_leaders: tuple[int, ...] | None = None
    """Replicas out of sync that may lead all the same (KIP-966); None if the broker does not tell."""
    last_known_eligible_leaders: tuple[int, ...] | None = None
    error: KafkaError | None = None


@dataclass(frozen=True)
class TopicDescription:
    name: str
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    partitions: tuple[PartitionDescription, ...] = ()
    authorized_operations: frozenset[int] | None = None
    """What this client may do with it, as numbers of Kafka's ACL operations; None if that was not asked for."""
    error: KafkaError | None = None


# ---- partitions


class OffsetSpec(IntEnum):
    """Offsets with a name; any other number is a timestamp in milliseconds."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    """Of the record with the latest timestamp."""
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class IsolationLevel(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True)
class ListedOffset:
    offset: int
    """-1 if there is no such offset: no record is so young."""
    timestamp: int = -1
    leader_epoch: int = -1
    error: KafkaError | None = None


@dataclass(frozen=True)
class DeletedRecords:
    low_watermark: int
    """The first offset that is left on all replicas."""
    error: KafkaError | None = None


@dataclass(frozen=True)
class ProducerState:
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
    """-1 if it has no transaction open here."""


@dataclass(frozen=True)
class PartitionProducers:
    producers: tuple[ProducerState, ...] = ()
    error: KafkaError | None = None


# ---- settings


class ConfigResourceType(IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from."""

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
    SET = 0
    DELETE = 1
    """Back to the default."""
    APPEND = 2
    """Adds to a list."""
    SUBTRACT = 3
    """Takes off a list."""


@dataclass(frozen=True)
class ConfigResource:
    """Something that has settings.

    `configs`: to describe, names of keys (all if it is None); to alter, values by key. A value may be a pair of an
    AlterConfigOp and a value; None goes back to the default.
    """

    resource_type: ConfigResourceType | str | int
    name: str
    configs: Mapping[str, object] | Sequence[str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        kind = self.resource_type
        if isinstance(kind, str):
            kind = ConfigResourceType[kind.upper()]
        object.__setattr__(self, "resource_type", ConfigResourceType(kind))


@dataclass(frozen=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True)
class ConfigEntry:
    name: str
    value: str | None
    """None if it is sensitive, or not set."""
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
    entries: Mapping[str, ConfigEntry] = field(default_factory=dict)
    error: KafkaError | None = None

    def __getitem__(self, key: str) -> str | None:
        return self.entries[key].value


@dataclass(frozen=True)
class AlteredConfig:
    error: KafkaError | None = None


# ---- the cluster


@dataclass(frozen=True)
class BrokerDescription:
    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True)
class ClusterDescription:
    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: frozenset[int] | None = None

    @property
    def controller(self) -> BrokerDescription | None:
        return next((each for each in self.brokers if each.id == self.controller_id), None)


@dataclass(frozen=True)
class ReplicaInfo:
    size: int
    offset_lag: int
    is_future: bool = False
    """Whether it is being copied here from another directory."""


@dataclass(frozen=True)
class LogDirDescription:
    broker_id: int
    path: str
    replicas: Mapping[TopicPartition, ReplicaInfo] = field(default_factory=dict)
    total_bytes: int = -1
    """Of its volume; -1 if the broker does not tell."""
    usable_bytes: int = -1
    is_cordoned: bool = False
    error: KafkaError | None = None


# ---- groups


@dataclass(frozen=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str = ""
    """Empty if the broker does not tell (before Kafka 2.6)."""
    type: str = ""


@dataclass(frozen=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] = ()
    subscription: tuple[str, ...] = ()
    """Topics; empty while the group is rebalancing, and for groups that are not consumers'."""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@dataclass(frozen=True)
class GroupDescription:
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
    error: KafkaError | None = None


@dataclass(frozen=True)
class GroupOffsets:
    """Committed offsets of a group. Partitions without one are left out."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)
    error: KafkaError | None = None

    def __getitem__(self, tp: TopicPartition) -> OffsetAndMetadata:
        return self.offsets[tp]


@dataclass(frozen=True)
class AlteredOffset:
    error: KafkaError | None = None


@dataclass(frozen=True)
class MemberToRemove:
    """A member by its id, or a static one by its instance id."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class RemovedMember:
    error: KafkaError | None = None


# ---- transactions


class TransactionState(Enum):
    """Kafka's names for what a transaction may be doing."""

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
    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True)
class TransactionDescription:
    transactional_id: str
    state: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    transaction_timeout_ms: int = -1
    transaction_start_time_ms: int | None = None
    """None if no transaction is open."""
    partitions: frozenset[TopicPartition] = frozenset()
    coordinator_id: int = -1
    error: KafkaError | None = None


@dataclass(frozen=True)
class AbortTransactionSpec:
    """An open transaction on one partition, as `describe_producers` shows it."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = 0


@dataclass(frozen=True)
class FencedProducer:
    """The id and epoch that the fenced producers do not have."""

    producer_id: int = -1
    producer_epoch: int = -1
    error: KafkaError | None = None
