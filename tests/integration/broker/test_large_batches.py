"""Batches that are much larger uncompressed: limits, order, and other clients meanwhile."""

import logging
import threading
from collections.abc import Iterator

import pytest
from tests.support.net.wire_calls import NAMED, batch, end_offset, fetch, produce, produce_request
from tests.support.net.wire_client import WireClient

import headrace
from headrace.broker.server import Broker
from headrace.common.errors import CorruptRecordError
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.produce import PartitionProduceData
from headrace.records import Compression, split_batches
from headrace.testing import EmbeddedBroker

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
MIB = 1024 * 1024
MESSAGE_TOO_LARGE = 10
LARGE = b"x" * (1 * MIB)
"""Eight of these are decompressed in a thread."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    # Twice max.message.bytes, which is enough for 8 MB of snappy; at least 16 MB.
    config = {"headrace.max.inflation.ratio": 2, "message.max.bytes": 2 * MIB}
    with EmbeddedBroker(topics={"t": 3, "times": 1}, properties=config) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address, client_id="bomber") as client:
        yield client


def held_bytes(broker: Broker) -> int:
    return broker.server.memory.held_bytes


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [1, -1])
def test_large_batch_is_appended(client: WireClient, codec: Compression, acks: int) -> None:
    before = end_offset(client)
    reply = produce(client, batch(*[LARGE] * 8, codec=codec), acks=acks)
    assert (reply.error_code, reply.error_message, reply.base_offset) == (0, None, before)
    assert end_offset(client) == before + 8


@pytest.mark.parametrize("codec", CODECS)
def test_batch_above_the_limit_is_rejected(
    client: WireClient, codec: Compression, caplog: pytest.LogCaptureFixture
) -> None:
    before = end_offset(client, partition=1)
    caplog.set_level(logging.WARNING)
    reply = produce(client, batch(*[LARGE] * 17, codec=codec), partition=1)
    assert (reply.error_code, reply.base_offset) == (MESSAGE_TOO_LARGE, -1)
    assert "larger than 16777216 bytes uncompressed, 8 times the maximum configured value of 2097152" in (
        reply.error_message
    )
    assert end_offset(client, partition=1) == before


def test_log_names_the_sender(caplog: pytest.LogCaptureFixture) -> None:
    config = {"headrace.max.inflation.ratio": 1}
    with EmbeddedBroker(topics={"t": 1}, properties=config) as broker, WireClient(broker.address, "bomber") as client:
        assert produce(client, batch(*[LARGE] * 17, codec=Compression.ZSTD)).error_code == MESSAGE_TOO_LARGE
        port = client.sock.getsockname()[1]
    (line,) = [record.getMessage() for record in caplog.records if "rejected a batch" in record.getMessage()]
    assert line.startswith("Partition t-0: rejected a batch of PRODUCE v12 (correlation id ")
    assert f"client 'bomber', from 127.0.0.1:{port} on PLAINTEXT): The record batch of " in line


def test_requests_of_a_connection_stay_in_order(broker: EmbeddedBroker, client: WireClient) -> None:
    large = batch(*[LARGE] * 8, codec=Compression.ZSTD)
    sent = []
    for number in range(6):
        sent.append(client.send(produce_request(large if number % 2 == 0 else batch(b"small"), partition=2), NAMED))
    offsets = [client.receive(each).responses[0].partition_responses[0].base_offset for each in sent]
    assert [offset - offsets[0] for offset in offsets] == [0, 8, 9, 17, 18, 26]
    broker.wait_until(lambda inner: held_bytes(inner) == 0)


def test_large_and_small_batches_in_one_request(client: WireClient) -> None:
    before = [end_offset(client, partition=partition) for partition in range(3)]
    request = produce_request(batch(b"first"), partition=0)
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=1, records=batch(*[LARGE] * 8, codec=Compression.LZ4)),
        PartitionProduceData(index=7, records=batch(b"nowhere")),
        PartitionProduceData(index=2, records=batch(*[LARGE] * 17, codec=Compression.LZ4)),
    ]
    (topic,) = client.call(request, NAMED).responses
    assert [(each.index, each.error_code) for each in topic.partition_responses] == [
        (0, 0),
        (1, 0),
        (7, 3),
        (2, MESSAGE_TOO_LARGE),
    ]
    after = [end_offset(client, partition=partition) for partition in range(3)]
    assert [new - old for new, old in zip(after, before, strict=True)] == [1, 8, 0]


def test_large_batch_of_a_lost_connection_is_appended_and_gives_its_memory_back(broker: EmbeddedBroker) -> None:
    with WireClient(broker.address) as client:
        before = end_offset(client)
        with WireClient(broker.address) as lost:
            lost.send(produce_request(batch(*[LARGE] * 8, codec=Compression.GZIP)), NAMED)
        broker.wait_until(lambda inner: inner.replicas.find("t", 0).log.log_end_offset == before + 8)
        broker.wait_until(lambda inner: held_bytes(inner) == 0)


def test_other_clients_are_served_while_a_large_batch_is_decompressed(
    broker: EmbeddedBroker, client: WireClient
) -> None:
    blocked = threading.Event()
    with WireClient(broker.address) as other:
        broker.call(lambda inner: inner._run_task(inner.batch_inflater.run(lambda: bool(blocked.wait()) and None)))
        try:
            sent = client.send(produce_request(batch(*[LARGE] * 8, codec=Compression.ZSTD)), NAMED)
            assert produce(other, batch(b"meanwhile")).error_code == 0
            broker.wait_until(lambda inner: held_bytes(inner) > 0)
        finally:
            blocked.set()
        assert client.receive(sent).responses[0].partition_responses[0].error_code == 0


def test_large_batch_is_recompressed_in_the_thread(broker: EmbeddedBroker, client: WireClient) -> None:
    broker.create_topic("gzip", configs={"compression.type": "gzip"})
    assert produce(client, batch(*[LARGE] * 8, codec=Compression.ZSTD), topic="gzip").error_code == 0
    (stored,) = split_batches(fetch(client, 0, "gzip").records)
    assert (stored.codec, stored.count) == (Compression.GZIP, 8)


def list_offset(client: WireClient, timestamp: int) -> tuple[int, int, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="times", partitions=[partition])])
    (found,) = client.call(request, 9).topics[0].partitions
    return found.error_code, found.offset, found.timestamp


def test_offsets_by_timestamp_in_large_batches(client: WireClient) -> None:
    start = 1_700_000_000_000
    for number in range(3):
        data = batch(*[LARGE] * 8, codec=Compression.ZSTD, timestamp=start + number * 10)
        assert produce(client, data, topic="times").error_code == 0
    assert produce(client, batch(b"small", timestamp=start + 30), topic="times").error_code == 0
    assert list_offset(client, start) == (0, 0, start)
    assert list_offset(client, start + 5) == (0, 8, start + 10)
    assert list_offset(client, start + 20) == (0, 16, start + 20)
    assert list_offset(client, start + 21) == (0, 24, start + 30)
    assert list_offset(client, start + 31) == (0, -1, -1)
    assert produce(client, batch(*[LARGE] * 8, codec=Compression.ZSTD, timestamp=start + 40), topic="times")
    assert list_offset(client, -3) == (0, 25, start + 40)


def test_consumer_limits_the_uncompressed_size(broker: EmbeddedBroker, client: WireClient) -> None:
    produce(client, batch(*[LARGE] * 8, codec=Compression.ZSTD))
    tp = headrace.TopicPartition("t", 0)
    with headrace.Consumer(
        bootstrap_servers=broker.bootstrap_servers, fetch_max_inflated_bytes=4 * MIB, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, end_offset(client) - 8)
        with pytest.raises(CorruptRecordError, match="zstd data decompresses to more than the limit of 4194304"):
            consumer.poll(timeout_ms=30_000)
