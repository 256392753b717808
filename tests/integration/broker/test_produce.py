"""Produce over a socket: acks, errors of partitions, and the content of the log."""

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.net.wire_calls import NAMED, batch, end_offset, fetch, produce, produce_request, topic_id
from tests.support.net.wire_client import ConnectionEnded, WireClient

from headrace.broker import yielding
from headrace.broker.partition import Partition
from headrace.common.ids import Uuid
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records import BatchBuilder, Compression, decode_rows, split_batches
from headrace.storage.validation import MAX_RECORD_ERRORS
from headrace.testing import EmbeddedBroker

BY_ID = 13
"""The first Produce version with topic ids."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 3}) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        yield client


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_with_topic_names(client: WireClient, version: int, acks: int) -> None:
    before = end_offset(client)
    reply = produce(client, batch(b"a", b"b"), version, acks=acks)
    assert (reply.error_code, reply.base_offset, reply.log_append_time_ms) == (0, before, -1)
    assert end_offset(client) == before + 2


def test_topics_by_id(client: WireClient) -> None:
    request = produce_request(batch(b"by id"), topic="")
    request.topic_data[0].topic_id = topic_id(client)
    (topic,) = client.call(request, BY_ID).responses
    assert topic.topic_id == topic_id(client)
    assert topic.partition_responses[0].error_code == 0
    request.topic_data[0].topic_id = Uuid(int=99)
    (topic,) = client.call(request, BY_ID).responses
    assert topic.partition_responses[0].error_code == 100


def test_acks_0_has_no_response(client: WireClient) -> None:
    before = end_offset(client)
    client.send(produce_request(batch(b"quiet"), acks=0), NAMED)
    assert end_offset(client) == before + 1  # the next response belongs to the next request


def test_error_with_acks_0_closes_the_connection(broker: EmbeddedBroker, client: WireClient) -> None:
    client.send(produce_request(batch(b"quiet"), topic="nowhere", acks=0), NAMED)
    with pytest.raises((ConnectionEnded, ConnectionResetError)):
        client.receive_frame()


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_refuses_other_acks(client: WireClient, acks: int) -> None:
    before = end_offset(client)
    reply = produce(client, batch(), acks=acks)
    assert (reply.error_code, reply.base_offset) == (21, -1)
    assert end_offset(client) == before


def damaged(position: int) -> bytes:
    data = bytearray(batch(b"a value that is long enough"))
    data[position] ^= 0x55
    return bytes(data)


WRONG = {
    "no records": (None, 87),
    "no bytes": (b"", 87),
    "fewer bytes than a header": (b"x" * 60, 87),
    "two batches": (batch() + batch(), 87),
    "magic 1": (damaged(16), 87),
    "a wrong checksum": (damaged(17), 2),
    "damaged records": (damaged(70), 2),
    "cut short": (batch(b"a value that is long enough")[:-3], 87),
    "too far in the future": (batch(timestamp=int(time.time() * 1000) + 7_200_000), 32),
    "larger than max.message.bytes": (batch(bytes(2_000_000)), 10),
}


@pytest.mark.parametrize("what", WRONG)
def test_refuses_invalid_batches(client: WireClient, what: str) -> None:
    data, code = WRONG[what]
    before = end_offset(client)
    reply = produce(client, data)
    assert (reply.error_code, reply.base_offset) == (code, -1)
    assert reply.error_message
    assert end_offset(client) == before


@pytest.mark.parametrize("version", [4, 7, 8, 12])
def test_response_names_invalid_records(broker: EmbeddedBroker, client: WireClient, version: int) -> None:
    """From version 8 on (KIP-467). The log start offset is in version 5 and later."""
    topic = f"compacted-{version}"
    broker.create_topic(topic, configs={"cleanup.policy": "compact,delete"})
    assert produce(client, batch(b"v", key=b"k"), topic=topic).error_code == 0
    partitions = [DeleteRecordsPartition(partition_index=0, offset=1)]
    delete = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=5000)
    assert client.call(delete).topics[0].partitions[0].low_watermark == 1
    builder = BatchBuilder()
    for key in (b"k", None, None):
        builder.append(key, b"v", int(time.time() * 1000))
    reply = produce(client, bytes(builder.build()), version, topic=topic)
    assert (reply.error_code, reply.base_offset) == (87, -1)
    assert reply.log_start_offset == (1 if version >= 5 else -1)
    message = f"Compacted topic cannot accept message without key in topic partition {topic}-0"
    named = [(record.batch_index, record.batch_index_error_message) for record in reply.record_errors]
    assert named == ([(1, message), (2, message)] if version >= 8 else [])


def test_response_names_a_limited_number_of_invalid_records(client: WireClient) -> None:
    """A compressed batch of a few KB can have thousands of invalid records, and a request can have many batches."""
    tomorrow = int(time.time() * 1000) + 86_400_000
    data = batch(*[b""] * (MAX_RECORD_ERRORS - 1), timestamp=tomorrow, codec=Compression.GZIP)
    parts = [PartitionProduceData(index=0, records=data) for _ in range(3)]
    request = ProduceRequest(acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    (topic,) = client.call(request, NAMED).responses
    assert [reply.error_code for reply in topic.partition_responses] == [32, 32, 32]
    assert [len(reply.record_errors) for reply in topic.partition_responses] == [MAX_RECORD_ERRORS - 1, 1, 0]


def test_many_partitions_are_appended_in_turns(
    broker: EmbeddedBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches of a short list can take long, too. Meanwhile others reuse the memory of the request."""
    memory = broker.call(lambda broker: broker.server.memory)
    add = yielding.TurnQueue.add
    added: list[int] = []

    def give_way(turns: yielding.TurnQueue, resume: Callable[[], object]) -> None:
        memory.scratch[:] = bytes(len(memory.scratch))
        added.append(memory.held_bytes)
        add(turns, resume)

    broker.create_topic("turns", 12)
    broker.create_topic("more-turns", 12)
    monkeypatch.setattr(yielding, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(yielding.TurnQueue, "add", give_way)
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=index, records=batch(b"%d" % index)) for index in range(12)],
        )
        for name in ("turns", "more-turns")
    ]
    reply = client.call(ProduceRequest(acks=1, timeout_ms=5000, topic_data=topics), NAMED)
    assert {part.error_code for topic in reply.responses for part in topic.partition_responses} == {0}
    assert len(added) > 5
    assert min(added) >= 12 * len(batch()), "the copies count as memory of requests"
    assert broker.call(lambda broker: broker.server.memory.held_bytes) == 0


def test_partitions_fail_one_by_one(client: WireClient) -> None:
    parts = [
        PartitionProduceData(index=0, records=batch(b"good")),
        PartitionProduceData(index=1, records=b"bad"),
        PartitionProduceData(index=9, records=batch(b"nowhere")),
        PartitionProduceData(index=2, records=batch(b"good too")),
    ]
    topics = [
        TopicProduceData(name="t", partition_data=parts),
        TopicProduceData(name="unknown", partition_data=[PartitionProduceData(index=0, records=batch())]),
    ]
    reply = client.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), NAMED)
    codes = [[one.error_code for one in topic.partition_responses] for topic in reply.responses]
    assert codes == [[0, 87, 3, 0], [3]]


def append_with_bug(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    """Makes the append to one partition raise an error that is not Kafka's."""
    append = Partition.append

    def fail(partition: Partition, *arguments: Any, **options: Any) -> Any:
        if partition.tp.partition == index:
            raise RuntimeError("injected by a test")
        return append(partition, *arguments, **options)

    monkeypatch.setattr(Partition, "append", fail)


def test_internal_error_affects_only_its_partition(client: WireClient, monkeypatch: pytest.MonkeyPatch) -> None:
    append_with_bug(monkeypatch, 1)
    before = [end_offset(client, partition=index) for index in range(3)]
    parts = [PartitionProduceData(index=index, records=batch()) for index in range(3)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    ((first, failed, last),) = (topic.partition_responses for topic in client.call(request, NAMED).responses)
    assert (first.error_code, last.error_code) == (0, 0)
    assert (failed.index, failed.error_code, failed.base_offset) == (1, -1, -1)
    assert [end_offset(client, partition=index) for index in range(3)] == [before[0] + 1, before[1], before[2] + 1]


def test_internal_error_with_acks_0_closes_the_connection(
    broker: EmbeddedBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_with_bug(monkeypatch, 1)
    client.send(produce_request(batch(b"quiet"), partition=1, acks=0), NAMED)
    with pytest.raises((ConnectionEnded, ConnectionResetError)):
        client.receive_frame()


def test_refuses_zstd_in_old_versions(client: WireClient) -> None:
    data = batch(b"x" * 100, codec=Compression.ZSTD)
    assert produce(client, data, 6).error_code == 76
    assert produce(client, data, 7).error_code == 0


def test_refuses_internal_topics(client: WireClient) -> None:
    assert produce(client, batch(), topic="__consumer_offsets").error_code == 17


def test_log_append_time(broker: EmbeddedBroker, client: WireClient) -> None:
    broker.create_topic("appended", 1, {"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    reply = produce(client, batch(b"x", timestamp=5), topic="appended")
    assert reply.log_append_time_ms >= before
    (stored,) = split_batches(bytes(fetch(client, 0, "appended").records))
    assert [record.timestamp for record in decode_rows(stored.records())] == [reply.log_append_time_ms]


def test_min_insync_replicas_is_limited_by_the_replicas(broker: EmbeddedBroker, client: WireClient) -> None:
    broker.create_topic("needs-two", 1, {"min.insync.replicas": "2"})
    assert produce(client, batch(), topic="needs-two", acks=-1).error_code == 0


def test_not_enough_in_sync_replicas(broker: EmbeddedBroker, client: WireClient) -> None:
    broker.create_topic("needs-two-of-two", 1, {"min.insync.replicas": "2"})
    broker.call(lambda running: running.replicas.find("needs-two-of-two", 0).replicas.append(99))
    assert produce(client, batch(), topic="needs-two-of-two", acks=-1).error_code == 19
    assert produce(client, batch(), topic="needs-two-of-two", acks=1).error_code == 0


def test_pipelined_requests_get_responses_in_order(client: WireClient) -> None:
    ends = [end_offset(client, partition=partition) for partition in range(3)]
    sent = []
    for number in range(50):
        sent.append(client.send(produce_request(batch(b"%d" % number), partition=number % 3), NAMED))
        sent.append(client.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3))
    replies = [client.receive(one) for one in sent]  # each checks its correlation id
    assert [reply.error_code for reply in replies[1::2]] == [0] * 50
    for number, reply in enumerate(replies[::2]):
        ((written,),) = (topic.partition_responses for topic in reply.responses)
        assert (written.error_code, written.index) == (0, number % 3)
        assert written.base_offset == ends[number % 3] + number // 3


def test_truncated_frame_affects_only_its_sender(broker: EmbeddedBroker, client: WireClient) -> None:
    with WireClient(broker.address) as bad:
        bad.sock.sendall(struct.pack(">i", 2**31 - 1) + b"x" * 100)
        with pytest.raises((ConnectionEnded, ConnectionResetError)):
            bad.receive_frame()
    assert produce(client, batch()).error_code == 0
