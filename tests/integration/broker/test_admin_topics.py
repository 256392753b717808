"""Topics over a socket: create, add partitions, delete records, describe, delete, restart."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.admin_calls import create_topic, delete_topic
from tests.support.net.wire_calls import batch, end_offset, fetch, fetch_request, produce
from tests.support.net.wire_client import WireClient

from headrace.common.errors import (
    OffsetOutOfRangeError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import ZERO_UUID
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        yield client


@pytest.mark.parametrize("version", range(2, 8))
def test_new_topic_accepts_records_at_once(client: WireClient, version: int) -> None:
    name = f"made-{version}"
    assert create_topic(client, name, 3, version).error_code == 0
    for partition in range(3):
        assert produce(client, batch(b"x"), topic=name, partition=partition).error_code == 0
    assert create_topic(client, name).error_code == TopicAlreadyExistsError.code


def test_deleted_topic_can_be_recreated_at_once(client: WireClient) -> None:
    for _ in range(3):
        made = create_topic(client, "phoenix")
        assert made.error_code == 0
        assert produce(client, batch(b"x"), topic="phoenix").base_offset == 0
        gone = delete_topic(client, None, made.topic_id)
        assert (gone.error_code, gone.name, gone.topic_id) == (0, "phoenix", made.topic_id)
        assert fetch(client, 0, "phoenix").error_code == UnknownTopicOrPartitionError.code
    assert delete_topic(client, "phoenix").error_code == UnknownTopicOrPartitionError.code


def test_deletion_completes_a_delayed_fetch(broker: EmbeddedBroker, client: WireClient) -> None:
    create_topic(client, "awaited")
    with WireClient(broker.address) as waiting:
        sent = waiting.send(fetch_request(0, "awaited", max_wait_ms=600_000), 12)
        broker.wait_until(lambda inside: inside.replicas.fetches.delayed > 0)
        assert delete_topic(client, "awaited").error_code == 0
        ((found,),) = (topic.partitions for topic in waiting.receive(sent).responses)
        assert found.error_code != 0


def test_adds_partitions(client: WireClient) -> None:
    create_topic(client, "growing", 1)
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="growing", count=4)], timeout_ms=20_000)
    request.topics[0].assignments = None
    (result,) = client.call(request).results
    assert result.error_code == 0, result.error_message
    assert produce(client, batch(b"x"), topic="growing", partition=3).error_code == 0
    (topic,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="growing")]), 12).topics
    assert len(topic.partitions) == 4


def test_deletes_records(client: WireClient) -> None:
    create_topic(client, "emptied")
    for _ in range(4):
        produce(client, batch(b"a", b"b"), topic="emptied")
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="emptied", partitions=[DeleteRecordsPartition(offset=3)])], timeout_ms=5000
    )
    (result,) = client.call(request).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (0, 3)
    assert fetch(client, 2, "emptied").error_code == OffsetOutOfRangeError.code
    assert fetch(client, 3, "emptied").error_code == 0
    request.topics[0].partitions[0].offset = -1
    (result,) = client.call(request).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (0, 8)
    assert end_offset_of_empty(client, "emptied") == 8


def end_offset_of_empty(client: WireClient, topic: str) -> int:
    return int(fetch(client, 8, topic).high_watermark)


def test_timeout_does_not_stop_the_creation(broker: EmbeddedBroker, client: WireClient) -> None:
    result = create_topic(client, "late", timeout_ms=0)
    assert result.error_code in (0, RequestTimedOutError.code)
    broker.wait_until(lambda inside: inside.image.topic_is_ready("late", 1))
    assert produce(client, batch(b"x"), topic="late").error_code == 0


def test_describes_the_cluster_and_log_dirs(broker: EmbeddedBroker, client: WireClient) -> None:
    create_topic(client, "shown", 2)
    produce(client, batch(b"x" * 100), topic="shown", partition=1)
    cluster = client.call(DescribeClusterRequest())
    assert [(each.host, each.port) for each in cluster.brokers] == [broker.address]
    assert cluster.controller_id == cluster.brokers[0].broker_id
    (directory,) = client.call(DescribeLogDirsRequest(topics=None)).results
    assert Path(directory.log_dir) == broker.data_dir
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in directory.topics
        for partition in topic.partitions
    }
    assert sizes["shown", 0] == 0
    assert sizes["shown", 1] > 100
    listed = client.call(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000))
    names = [topic.name for topic in listed.topics]
    assert "shown" in names
    assert names == sorted(names)


def test_describes_producers(client: WireClient) -> None:
    create_topic(client, "written")
    data = batch(b"a", b"b", producer_id=77, producer_epoch=3, base_sequence=0)
    assert produce(client, data, topic="written").error_code == 0
    request = DescribeProducersRequest(topics=[TopicRequest(name="written", partition_indexes=[0])])
    (partition,) = client.call(request).topics[0].partitions
    (producer,) = partition.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 3, 1)


@pytest.mark.parametrize("clean", [True, False])
def test_topics_survive_a_restart(clean: bool) -> None:
    with EmbeddedBroker() as broker:
        with WireClient(broker.address) as client:
            made = create_topic(client, "kept", 2, retention_ms="5000000")
            create_topic(client, "dropped")
            produce(client, batch(b"a", b"b"), topic="kept", partition=1)
            assert delete_topic(client, "dropped").error_code == 0
        broker.restart(clean=clean)
        with WireClient(broker.address) as client:
            reply = client.call(MetadataRequest(topics=None), 12)
            assert [(topic.name, topic.topic_id) for topic in reply.topics] == [("kept", made.topic_id)]
            assert made.topic_id != ZERO_UUID
            assert end_offset(client, "kept", 1) == 2
            assert create_topic(client, "kept").error_code == TopicAlreadyExistsError.code


def test_many_clients_create_the_same_topic(broker: EmbeddedBroker) -> None:
    clients = [WireClient(broker.address) for _ in range(8)]
    try:
        asked = CreatableTopic(name="contested", num_partitions=2, replication_factor=1)
        sent = [each.send(CreateTopicsRequest(topics=[asked], timeout_ms=20_000)) for each in clients]
        codes = [each.receive(request).topics[0].error_code for each, request in zip(clients, sent, strict=True)]
    finally:
        for each in clients:
            each.close()
    assert sorted(codes) == [0] + [TopicAlreadyExistsError.code] * 7
