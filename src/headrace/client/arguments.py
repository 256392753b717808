"""Topic partitions and offsets in the arguments of the clients' methods.

Users may pass the types of other clients: any object with `topic` and `partition` is a topic partition, any object with
`offset` is an offset. Plain tuples are accepted too. The public methods convert them, so that all other code has one
type.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from headrace.client.types import OffsetAndMetadata
from headrace.common.types import TopicPartition

__all__ = [
    "AnyPartition",
    "OffsetLike",
    "PartitionLike",
    "to_offset",
    "to_offsets",
    "to_partition",
    "to_partition_keys",
    "to_partitions",
]

V = TypeVar("V")
_NO_EPOCH = -1


class PartitionLike(Protocol):
    """A topic partition: `headrace.TopicPartition`, or that of another client."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...


class _HasOffset(Protocol):
    @property
    def offset(self) -> int: ...


AnyPartition = TypeVar("AnyPartition", bound=PartitionLike)
"""The type of the keys of a mapping: mypy accepts a mapping only with exactly the declared type of keys."""
OffsetLike: TypeAlias = int | _HasOffset
"""An offset: a number, or an object with `offset` and perhaps `metadata` and `leader_epoch`."""


def to_partition(value: Any) -> TopicPartition:
    """Returns an object with `topic` and `partition` as a TopicPartition."""
    if type(value) is TopicPartition:
        return value
    if type(value) is tuple and len(value) == 2:
        topic, partition = value
    else:
        topic, partition = getattr(value, "topic", None), getattr(value, "partition", None)
    if not isinstance(topic, str) or not isinstance(partition, int) or isinstance(partition, bool):
        raise TypeError(
            f"a partition must be a TopicPartition, not {_describe(value)}: expected an object with `topic` (str) "
            "and `partition` (int)"
        )
    return TopicPartition(topic, partition)


def to_partitions(values: Iterable[PartitionLike], name: str = "partitions") -> list[TopicPartition]:
    """Returns a list of TopicPartitions. `name` is that of the argument."""
    is_one = isinstance(values, str | type) or (hasattr(values, "topic") and hasattr(values, "partition"))
    if is_one or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of TopicPartitions, not {_describe(values)}")
    return [to_partition(value) for value in values]


def to_partition_keys(values: Mapping[AnyPartition, V], name: str) -> dict[TopicPartition, V]:
    """Returns a mapping whose keys are TopicPartitions. `name` is that of the argument."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a mapping with TopicPartitions as keys, not {_describe(values)}")
    return {to_partition(key): value for key, value in values.items()}


def to_offset(value: Any) -> OffsetAndMetadata:
    """Returns a number, or an object with `offset`, as an OffsetAndMetadata. Metadata None becomes empty."""
    if type(value) is OffsetAndMetadata:
        offset = value
    elif isinstance(value, int):
        offset = OffsetAndMetadata(value)
    elif type(value) is tuple:
        offset = OffsetAndMetadata(*value)
    else:
        number: Any = getattr(value, "offset", None)
        epoch = getattr(value, "leader_epoch", None)
        offset = OffsetAndMetadata(
            number,
            getattr(value, "metadata", None) or "",
            _NO_EPOCH if epoch is None else epoch,
        )
    if not isinstance(offset.offset, int) or isinstance(offset.offset, bool):
        raise TypeError(f"an offset must be an int or an object with `offset` (int), not {_describe(value)}")
    if offset.metadata is not None and not isinstance(offset.metadata, str):
        raise TypeError(f"the metadata of an offset must be a str, not {_describe(offset.metadata)}")
    return OffsetAndMetadata(offset.offset, offset.metadata or "", offset.leader_epoch)


def to_offsets(offsets: Mapping[AnyPartition, OffsetLike]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets that the user wants to commit. Plain numbers get empty metadata."""
    converted: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, value in to_partition_keys(offsets, "offsets").items():
        if hasattr(value, "value") and hasattr(value, "offset"):
            raise TypeError(f"{tp}: cannot commit a record: commit the offset of the next one, record.offset + 1")
        offset = to_offset(value)
        if offset.offset < 0:
            raise ValueError(f"{tp}: the offset to commit must be at least 0, not {offset.offset}")
        converted[tp] = offset
    return converted


def _describe(value: object) -> str:
    """Returns the value's type, and the value itself if it is short."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = repr(value)
    return type(value).__name__ if len(text) > 60 else f"{type(value).__name__} {text}"
