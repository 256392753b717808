"""Small values in the clients' API. Fields and their order are kafka-python's."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes | None)
    """The type of a consumer's keys. Without a deserializer, bytes or None."""
    V = TypeVar("V", default=bytes | None)
    """The type of a consumer's values."""
else:
    from typing import TypeVar  # has no defaults before Python 3.13

    K = TypeVar("K")
    V = TypeVar("V")

__all__ = [
    "ConsumerGroupMetadata",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Offsets",
    "OnCommit",
    "RecordMetadata",
    "TopicPartition",
    "TopicPartitionReplica",
]


class OffsetAndMetadata(NamedTuple):
    """An offset to commit or a committed offset: that of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit: TypeAlias = Callable[[Offsets, KafkaError | None], object]
"""`callback(offsets, error)`: called when offsets were committed (error is None) or could not be."""


class OffsetAndTimestamp(NamedTuple):
    """A result of `offsets_for_times`: the first record whose timestamp is not before the requested one."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class TopicPartitionReplica(NamedTuple):
    """A replica of a partition."""

    topic: str
    partition: int
    broker_id: int


class MemberState(StrEnum):
    """Whether a consumer is a member of its group. The values are kafka-python's."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's current membership, for `Producer.send_offsets_to_transaction` (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED
    """One of the values of MemberState. Transactions do not use it."""


class RecordMetadata(NamedTuple):
    """The position of an acknowledged record. If `acks` is 0, `offset` is -1 and `timestamp` is the producer's."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None = None
    """Always None: records have no checksum since Kafka 0.11."""
    serialized_key_size: int = -1
    serialized_value_size: int = -1
    serialized_header_size: int = -1
