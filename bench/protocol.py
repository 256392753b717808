"""Compares the codec with kio's native reader and Python writer, on the same bytes.

Where Headrace creates lists, messages and integers, kio's reader creates tuples, frozen dataclasses and datetimes. kio
copies records, Headrace returns views of them. Both sides convert bytes to objects, or objects to bytes.
"""

import io
from collections.abc import Callable
from typing import Any

from kio.schema.fetch.v12 import request as kio_fetch_request
from kio.schema.fetch.v12 import response as kio_fetch
from kio.schema.metadata.v12 import response as kio_metadata
from kio.schema.produce.v9 import request as kio_produce
from kio.schema.produce.v9 import response as kio_produce_response
from kio.serial import entity_reader, entity_writer

from bench.harness import Measurement, compare, seconds_of
from headrace.common.ids import Uuid
from headrace.protocol import Message, decode, encode, encode_response
from headrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

BATCH_BYTES = 1000


def produce_request(partitions: int) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=bytes(BATCH_BYTES)) for index in range(partitions)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="orders", partition_data=data)])


def produce_response(partitions: int) -> ProduceResponse:
    responses = [
        PartitionProduceResponse(index=index, base_offset=1_000_000 + index, log_start_offset=0)
        for index in range(partitions)
    ]
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=responses)])


def fetch_request(partitions: int) -> FetchRequest:
    fetched = [
        FetchPartition(partition=index, fetch_offset=1_000_000, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    topics = [FetchTopic(topic="orders", partitions=fetched)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, session_id=77, session_epoch=5, topics=topics)


def fetch_response(partitions: int) -> FetchResponse:
    data = [
        PartitionData(partition_index=index, high_watermark=1_000_000, last_stable_offset=1_000_000, records=b"x" * 100)
        for index in range(partitions)
    ]
    return FetchResponse(session_id=77, responses=[FetchableTopicResponse(topic="orders", partitions=data)])


def metadata_response(topics: int, partitions: int) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=number, host="broker.example", port=9092) for number in range(3)]

    def topic(number: int) -> MetadataResponseTopic:
        topic_partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=1, leader_epoch=4, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
            )
            for index in range(partitions)
        ]
        return MetadataResponseTopic(
            name=f"topic-{number}", topic_id=Uuid(int=number + 2**100), partitions=topic_partitions
        )

    return MetadataResponse(cluster_id="c", controller_id=1, brokers=brokers, topics=list(map(topic, range(topics))))


def run(rounds: int) -> list[Measurement]:
    measurements: list[Measurement] = []
    cases: list[tuple[str, Message, int, Any, float, float, int]] = [
        ("produce request, 1 partition", produce_request(1), 9, kio_produce.ProduceRequest, 0.33, 1, 4000),
        ("produce request, 20 partitions", produce_request(20), 9, kio_produce.ProduceRequest, 0.33, 1, 400),
        (
            "produce response, 1 partition",
            produce_response(1),
            9,
            kio_produce_response.ProduceResponse,
            0.33,
            10,
            2000,
        ),
        ("fetch request, 1 partition", fetch_request(1), 12, kio_fetch_request.FetchRequest, 0.33, 10, 2000),
        ("fetch response, 1 partition", fetch_response(1), 12, kio_fetch.FetchResponse, 0.33, 10, 2000),
        (
            "metadata response, 100 partitions",
            metadata_response(10, 10),
            12,
            kio_metadata.MetadataResponse,
            0.33,
            10,
            50,
        ),
    ]
    for name, message, version, theirs, read_target, write_target, times in cases:
        measurements += _run_one(name, message, version, theirs, read_target, write_target, times, rounds)
    return measurements


def _run_one(
    name: str, message: Any, version: int, theirs: Any, read_target: float, write_target: float, times: int, rounds: int
) -> list[Measurement]:
    encoded = encode(message, version)
    cls, read, write = type(message), entity_reader(theirs), entity_writer(theirs)
    entity, size = read(encoded, 0)
    buffer = io.BytesIO()
    write(buffer, entity)
    if buffer.getvalue() != encoded or size != len(encoded) or decode(cls, version, encoded) != message:
        raise AssertionError("Headrace and kio encode or decode the message differently")
    frame = memoryview(bytearray(encoded))

    def write_theirs() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    def measure(what: str, target: float, ours: Callable[[], object], other: Callable[[], object]) -> Measurement:
        def repeat(action: Callable[[], object]) -> None:
            for _ in range(times):
                action()

        return compare(
            f"{what} {name}",
            peer="kio",
            ours=lambda: seconds_of(lambda: repeat(ours)),
            theirs=lambda: seconds_of(lambda: repeat(other)),
            work=times / 1e3,
            unit="k/s",
            target=target,
            rounds=rounds,
        )

    return [
        measure("read", read_target, lambda: decode(cls, version, frame), lambda: read(encoded, 0)),
        measure("write", write_target, lambda: encode_response(message, version, 7), write_theirs),
    ]
