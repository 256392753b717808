"""Message classes: construction, defaults, comparison, copies."""

import copy
import gc
import pickle
import weakref
from functools import partial

import pytest

from headrace.common.ids import ZERO_UUID
from headrace.protocol import Message
from headrace.protocol.message import INT32, STRING, field, parse_versions
from headrace.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from headrace.protocol.messages.fetch_snapshot import PartitionSnapshotRequest, SnapshotId
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponsePartition
from headrace.protocol.messages.produce import PartitionProduceResponse, ProduceRequest


def test_fields_have_their_defaults() -> None:
    partition = FetchPartition()
    assert (partition.partition, partition.current_leader_epoch, partition.fetch_offset) == (0, -1, 0)
    assert partition.replica_directory_id is ZERO_UUID
    assert partition.high_watermark == 2**63 - 1
    request = FetchRequest()
    assert request.cluster_id is None
    assert request.replica_state is None
    assert request.topics == []
    assert request.rack_id == ""
    assert PartitionProduceResponse().log_append_time_ms == -1
    assert PartitionData().records == b""
    assert MetadataRequest().allow_auto_topic_creation is True
    assert DescribeTopicPartitionsRequest().cursor is None


def test_mutable_defaults_are_not_shared() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchTopic(topic="a"))
    assert second.topics == []
    one, two = PartitionSnapshotRequest(), PartitionSnapshotRequest()
    assert one.snapshot_id == SnapshotId()
    assert one.snapshot_id is not two.snapshot_id


def test_construction_by_keyword_in_any_order() -> None:
    given = MetadataResponsePartition(isr_nodes=[1], partition_index=4, error_code=3)
    assert (given.error_code, given.partition_index, given.isr_nodes, given.leader_epoch) == (3, 4, [1], -1)
    name = "".join(["partition", "_index"])
    assert MetadataResponsePartition(**{name: 4}).partition_index == 4
    assert partial(MetadataResponsePartition, error_code=3)(partition_index=4, isr_nodes=[1]) == given
    assert type.__call__(MetadataResponsePartition, error_code=3, partition_index=4, isr_nodes=[1]) == given


@pytest.mark.parametrize("call", [MetadataRequest, partial(type.__call__, MetadataRequest)])
def test_construction_rejects_other_arguments(call: partial[MetadataRequest]) -> None:
    with pytest.raises(TypeError, match=r"MetadataRequest\(\) got an unexpected keyword argument 'topic'"):
        call(topic=[])
    with pytest.raises(TypeError, match=r"MetadataRequest\(\) takes keyword arguments only"):
        call([])


def test_rejects_other_attributes() -> None:
    request = ProduceRequest()
    with pytest.raises(AttributeError):
        request.topics = []  # type: ignore[attr-defined]
    request.acks = -1
    assert request.acks == -1
    assert not hasattr(request, "__dict__")


def test_comparison() -> None:
    assert FetchTopic(topic="a") == FetchTopic(topic="a")
    assert FetchTopic(topic="a") != FetchTopic(topic="b")
    assert FetchTopic(partitions=[FetchPartition()]) != FetchTopic(partitions=[FetchPartition(partition=1)])
    assert FetchTopic() != FetchPartition()
    assert FetchTopic() != 5
    with pytest.raises(TypeError, match="unhashable"):
        hash(FetchTopic())
    changed = FetchTopic()
    del changed.topic
    assert changed != FetchTopic()
    with pytest.raises(AttributeError):
        _ = changed.topic


def test_representation() -> None:
    shown = repr(FetchTopic(topic="a", partitions=[FetchPartition(partition=7)]))
    assert shown.startswith("FetchTopic(topic='a', topic_id=")
    assert "partitions=[FetchPartition(partition=7, current_leader_epoch=-1," in shown


def test_copies() -> None:
    topic = FetchTopic(topic="a", partitions=[FetchPartition(partition=7)])
    assert copy.copy(topic).partitions is topic.partitions
    deep = copy.deepcopy(topic)
    assert deep == topic
    assert deep.partitions[0] is not topic.partitions[0]
    assert pickle.loads(pickle.dumps(topic)) == topic


def test_messages_are_garbage_collected() -> None:
    class Token:
        pass

    token = Token()
    watch = weakref.ref(token)
    topic = FetchTopic()
    topic.partitions = [topic, token]  # type: ignore[list-item]
    del topic, token
    gc.collect()
    assert watch() is None


def test_custom_messages() -> None:
    class Inner(Message):
        number: int = field(INT32, "0+", default=5)

    class Whole(Message, versions="0-2"):
        name: str = field(STRING, "1+")
        inner: Inner = field(Inner, "0+")

    assert Whole(name="x").inner == Inner(number=5)
    with pytest.raises(TypeError, match="Message must be the only base"):

        class Sub(Whole):
            pass


@pytest.mark.parametrize(
    ("text", "expected"), [("3+", (3, 0x7FFF)), ("2-5", (2, 5)), ("4", (4, 4)), ("", (0, -1)), ("0-12", (0, 12))]
)
def test_version_ranges(text: str, expected: tuple[int, int]) -> None:
    assert parse_versions(text) == expected
