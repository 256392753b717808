"""Topic partitions and offsets of any client as arguments."""

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.arguments import to_offset, to_offsets, to_partition, to_partition_keys, to_partitions
from headrace.client.types import OffsetAndMetadata, OffsetAndTimestamp
from headrace.common.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Other = namedtuple("Other", ["topic", "partition"])
OtherOffset = namedtuple("OtherOffset", ["offset", "metadata"])


@pytest.mark.parametrize("value", [T0, Other("t", 0), ("t", 0), SimpleNamespace(topic="t", partition=0, offset=-1001)])
def test_anything_with_topic_and_partition_is_a_partition(value: Any) -> None:
    converted = to_partition(value)
    assert converted == T0
    assert type(converted) is TopicPartition
    assert to_partitions([value]) == [T0]
    assert to_partitions(iter([value])) == [T0]
    assert to_partition_keys({Other("t", 0): 5}, "offsets") == {T0: 5}


@pytest.mark.parametrize(
    "value", ["t", None, 5, [], ("t",), ("t", "0"), Other("t", "0"), Other(b"t", 0), Other("t", True), TopicPartition]
)
def test_other_values_are_no_partitions(value: Any) -> None:
    with pytest.raises(TypeError, match="a partition must be a TopicPartition"):
        to_partition(value)


@pytest.mark.parametrize("value", [T0, "orders", 5, None, TopicPartition, Other("t", 0)])
def test_a_single_value_is_no_list_of_partitions(value: Any) -> None:
    with pytest.raises(TypeError, match="partitions must be a list of TopicPartitions, not"):
        to_partitions(value)


def test_a_list_is_no_mapping() -> None:
    with pytest.raises(TypeError, match="timestamps must be a mapping with TopicPartitions as keys, not list"):
        to_partition_keys([T0], "timestamps")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, OffsetAndMetadata(7)),
        (OffsetAndMetadata(7, "m", 3), OffsetAndMetadata(7, "m", 3)),
        (OffsetAndMetadata(7, None), OffsetAndMetadata(7, "")),
        ((7, "m"), OffsetAndMetadata(7, "m")),
        (OtherOffset(7, "m"), OffsetAndMetadata(7, "m")),
        (SimpleNamespace(offset=7, metadata=None, leader_epoch=None), OffsetAndMetadata(7)),
        (SimpleNamespace(offset=7, metadata="m", leader_epoch=0), OffsetAndMetadata(7, "m", 0)),
        (OffsetAndTimestamp(7, 1000, 2), OffsetAndMetadata(7, "", 2)),
    ],
)
def test_anything_with_an_offset_is_an_offset(value: Any, expected: OffsetAndMetadata) -> None:
    converted = to_offset(value)
    assert converted == expected
    assert type(converted) is OffsetAndMetadata
    assert to_offsets({T0: value}) == {T0: expected}


@pytest.mark.parametrize("value", ["7", None, 7.0, True, OtherOffset("7", ""), OtherOffset(7, b"m"), SimpleNamespace()])
def test_other_values_are_no_offsets(value: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        to_offset(value)


def test_offsets_to_commit_are_checked() -> None:
    with pytest.raises(ValueError, match="t-1: the offset to commit must be at least 0, not -1001"):
        to_offsets({T0: 1, T1: SimpleNamespace(offset=-1001)})
    with pytest.raises(TypeError, match=r"t-0: cannot commit a record: .* record.offset \+ 1"):
        to_offsets({T0: SimpleNamespace(offset=5, value=b"v")})
