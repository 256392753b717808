"""Responses round-trip however the bytes arrive, and no bytes break a connection's guarantees."""

import asyncio
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.client.fake_brokers import FakeBroker, FakeTransport
from tests.support.net.virtual_loop import run

from headrace.common.errors import KafkaError
from headrace.net.broker_connection import BrokerConnection
from headrace.net.link_stats import LinkStats
from headrace.net.nodes import Node
from headrace.net.responses import ResponseMemory, ResponseReader
from headrace.protocol import ApiKey, encode_response
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

SIZES = st.one_of(st.integers(4, 50), st.integers(15_000, 20_000), st.integers(60_000, 200_000))


@given(sizes=st.lists(SIZES, max_size=6), chunks=st.lists(st.integers(1, 100_000), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_responses_round_trip(sizes: list[int], chunks: list[int]) -> None:
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = memoryview(b"".join(struct.pack(">i", len(each)) + each for each in payloads))
    reader = ResponseReader(1_000_000, ResponseMemory())
    found = []
    turn = 0
    while stream:
        buffer = reader.get_buffer()
        size = min(len(buffer), len(stream), chunks[turn % len(chunks)])
        turn += 1
        buffer[:size] = stream[:size]
        stream = stream[size:]
        found += reader.updated(size)
    assert [bytes(each) for each in found] == payloads
    assert reader.buffered_bytes == 0


GOOD = encode_response(MetadataResponse(cluster_id="here", topics=[MetadataResponseTopic(name="a")]), 12, 0)
assert isinstance(GOOD, bytes)


@given(
    changes=st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=4),
    extra=st.binary(max_size=30),
    chunk=st.integers(1, 100),
)
@settings(max_examples=300, deadline=None)
def test_every_request_completes_on_any_input(changes: list[tuple[int, int]], extra: bytes, chunk: int) -> None:
    data = bytearray(GOOD + extra)
    for place, value in changes:
        data[place] = value

    async def main() -> None:
        broker = FakeBroker(1, "host", 9092)
        broker.on(ApiKey.METADATA, lambda _: None)
        connection = BrokerConnection(
            asyncio.get_running_loop(),
            Node(1, "host", 9092),
            "me",
            1_000_000,
            ResponseMemory(),
            LinkStats(),
            lambda *_: None,
            lambda *_: None,
        )
        transport = FakeTransport(broker, connection)
        broker.transports.append(transport)
        connection.connection_made(transport)
        first = connection.send(MetadataRequest(topics=None), 12, 1000)
        second = connection.send(MetadataRequest(topics=None), 12, 1000)
        transport.deliver(bytes(data), chunk)
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        assert all(isinstance(each, MetadataResponse | KafkaError) for each in outcomes)
        assert connection.in_flight == 0

    run(main())
