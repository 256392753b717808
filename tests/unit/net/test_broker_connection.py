"""One connection to a fake broker, in virtual time."""

import asyncio
import struct
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.client.fake_brokers import FakeBroker, FakeTransport
from tests.support.net.virtual_loop import run

from headrace.common.errors import RequestTimedOutError, UnsupportedVersionError
from headrace.net.broker_connection import BrokerConnection
from headrace.net.errors import KafkaConnectionError
from headrace.net.link_stats import LinkStats
from headrace.net.nodes import Node
from headrace.net.responses import ResponseMemory
from headrace.protocol import ApiKey, Message, encode_response
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from headrace.protocol.messages.produce import ProduceRequest

NODE = Node(1, "host", 9092)


class Wire:
    """An established connection and its broker."""

    def __init__(self, broker: FakeBroker | None = None, max_response_bytes: int = 1_000_000):
        self.broker = broker or FakeBroker(1, "host", 9092)
        self.stats = LinkStats()
        self.lost: list[KafkaConnectionError | None] = []
        self.replies: list[Message] = []
        self.connection = BrokerConnection(
            asyncio.get_running_loop(),
            NODE,
            "me",
            max_response_bytes,
            ResponseMemory(),
            self.stats,
            lambda _, error: self.lost.append(error),
            lambda _, __, message: self.replies.append(message),
        )
        self.transport = FakeTransport(self.broker, self.connection)
        self.broker.transports.append(self.transport)
        self.connection.connection_made(self.transport)
        self.broker.on(ApiKey.METADATA, lambda _: MetadataResponse(cluster_id="here"))

    def ask(self, timeout_ms: float = 1000) -> "asyncio.Future[Any]":
        return self.connection.send(MetadataRequest(topics=None), 12, timeout_ms)


def in_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    run(main)


def test_request_gets_its_response() -> None:
    async def main() -> None:
        wire = Wire()
        reply = await wire.ask()
        assert reply.cluster_id == "here"
        (request,) = wire.broker.requests
        assert (request.client_id, request.version, request.correlation_id) == ("me", 12, 0)
        assert wire.replies == [reply]
        assert wire.connection.in_flight == 0
        assert (wire.stats.tx, wire.stats.rx, wire.stats.requests) == (1, 1, {ApiKey.METADATA: 1})
        assert wire.stats.tx_bytes == len(wire.transport.sent)

    in_virtual_time(main())


def test_responses_complete_requests_in_order() -> None:
    async def main() -> None:
        wire = Wire()
        wire.broker.on(ApiKey.METADATA, lambda request: MetadataResponse(cluster_id=str(len(wire.broker.requests))))
        futures = [wire.ask() for _ in range(5)]
        assert wire.connection.in_flight == 5
        replies = await asyncio.gather(*futures)
        assert [reply.cluster_id for reply in replies] == ["1", "2", "3", "4", "5"]
        assert [request.correlation_id for request in wire.broker.requests] == [0, 1, 2, 3, 4]

    in_virtual_time(main())


def test_connection_lost_at_every_byte_of_a_response() -> None:
    reply = encode_response(MetadataResponse(cluster_id="here"), 12, 0)
    assert isinstance(reply, bytes)

    async def cut(at: int) -> None:
        wire = Wire()
        wire.broker.on(ApiKey.METADATA, lambda _: None)
        future = wire.ask()
        wire.transport.deliver(reply[:at])
        wire.transport.hang_up()
        if at == len(reply):
            assert (await future).cluster_id == "here"
        else:
            within = " within a response" if at else ""
            with pytest.raises(KafkaConnectionError, match=f"closed the connection{within}$") as caught:
                await future
            assert caught.value.sent
            assert caught.value.retriable
        assert wire.connection.closed
        assert len(wire.lost) == 1

    for at in range(len(reply) + 1):
        in_virtual_time(cut(at))


def test_response_arriving_byte_by_byte() -> None:
    async def main() -> None:
        wire = Wire(FakeBroker(1, "host", 9092, chunk=1))
        replies = await asyncio.gather(*[wire.ask() for _ in range(3)])
        assert [reply.cluster_id for reply in replies] == ["here"] * 3

    in_virtual_time(main())


def test_missing_response_closes_the_connection() -> None:
    async def main() -> None:
        wire = Wire()
        wire.broker.on(ApiKey.METADATA, lambda _: None)
        loop = asyncio.get_running_loop()
        started = loop.time()
        slow, other = wire.ask(1000), wire.ask(5000)
        with pytest.raises(
            RequestTimedOutError, match=r"host:9092 \(broker 1\) did not respond to Metadata within 1000 ms"
        ):
            await slow
        assert loop.time() - started == pytest.approx(1.0)
        with pytest.raises(KafkaConnectionError, match="so the connection was closed"):
            await other
        assert wire.connection.closed
        assert wire.transport.closed
        assert wire.stats.request_timeouts == 1

    in_virtual_time(main())


def test_a_later_request_may_time_out_first() -> None:
    async def main() -> None:
        wire = Wire()
        wire.broker.on(ApiKey.METADATA, lambda _: None)
        patient, hasty = wire.ask(10_000), wire.ask(100)
        with pytest.raises(RequestTimedOutError):
            await hasty
        with pytest.raises(KafkaConnectionError):
            await patient

    in_virtual_time(main())


def test_timely_response_cancels_the_timeout() -> None:
    async def main() -> None:
        wire = Wire()
        for _ in range(10):
            await wire.ask(1000)
            await asyncio.sleep(0.5)
        assert not wire.connection.closed
        assert wire.stats.request_timeouts == 0

    in_virtual_time(main())


def test_cancelled_request_does_not_affect_others() -> None:
    async def main() -> None:
        wire = Wire()
        first, second = wire.ask(), wire.ask()
        first.cancel()
        assert (await second).cluster_id == "here"

    in_virtual_time(main())


def test_response_out_of_order_closes_the_connection() -> None:
    async def main() -> None:
        wire = Wire()
        wire.broker.on(ApiKey.METADATA, lambda _: encode_response(MetadataResponse(), 12, 77))
        with pytest.raises(KafkaConnectionError, match="a response with correlation id 77, expected 0"):
            await wire.ask()
        assert wire.connection.closed

    in_virtual_time(main())


def test_unrequested_response_closes_the_connection() -> None:
    async def main() -> None:
        wire = Wire()
        wire.transport.deliver(struct.pack(">ii", 4, 0))
        assert wire.connection.closed
        assert "a response without a request" in str(wire.lost[0])

    in_virtual_time(main())


def test_unreadable_response_closes_the_connection() -> None:
    async def main() -> None:
        wire = Wire()
        wire.broker.on(ApiKey.METADATA, lambda _: struct.pack(">iib", 7, 0, 0) + b"\xff\xff")
        with pytest.raises(KafkaConnectionError, match="sent an invalid response: MetadataResponse"):
            await wire.ask()
        assert wire.stats.rx_errors == 1

    in_virtual_time(main())


def test_other_protocols_are_recognized() -> None:
    async def main() -> None:
        wire = Wire()
        wire.broker.on(ApiKey.METADATA, lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(KafkaConnectionError, match="looks like an HTTP server"):
            await wire.ask()

    in_virtual_time(main())


def test_large_response_is_received_in_large_chunks() -> None:
    async def main() -> None:
        wire = Wire(max_response_bytes=5_000_000)
        name = "x" * 32_000
        message = MetadataResponse(cluster_id="here", topics=[MetadataResponseTopic(name=name) for _ in range(80)])
        wire.broker.on(ApiKey.METADATA, lambda _: None)
        asked = wire.ask()
        data = encode_response(message, 12, 0)
        assert isinstance(data, bytes)
        wire.transport.deliver(data, chunk=600_000)
        reply = await asked
        assert reply == message
        *waits, last = wire.transport.woken_at
        assert (waits[0], last) == (1024 * 1024, 1)
        assert all(0 < size <= 1024 * 1024 for size in waits), "the connection must not wait for more bytes than follow"
        assert len(waits) <= 4
        wire.broker.on(ApiKey.METADATA, lambda _: MetadataResponse(cluster_id="small"))
        del wire.transport.woken_at[:]
        assert (await wire.ask()).cluster_id == "small"
        assert wire.transport.woken_at == []

    in_virtual_time(main())


def test_oversized_response_closes_the_connection() -> None:
    async def main() -> None:
        wire = Wire(max_response_bytes=1000)
        wire.broker.on(ApiKey.METADATA, lambda _: MetadataResponse(cluster_id="x" * 2000))
        with pytest.raises(KafkaConnectionError, match=r"larger than receive.message.max.bytes \(1000\)"):
            await wire.ask()

    in_virtual_time(main())


def test_queued_requests_are_sent_in_order() -> None:
    async def main() -> None:
        wire = Wire()
        wire.connection.pause_writing()
        futures = [wire.ask() for _ in range(3)]
        assert not wire.broker.requests
        assert wire.connection.queued == 3
        wire.connection.resume_writing()
        await asyncio.gather(*futures)
        assert [request.correlation_id for request in wire.broker.requests] == [0, 1, 2]

    in_virtual_time(main())


def test_request_without_response_completes_when_written() -> None:
    async def main() -> None:
        wire = Wire()
        wire.broker.on(ApiKey.PRODUCE, lambda _: None)
        assert await wire.connection.send(ProduceRequest(acks=0), 9, 1000, expect_response=False) is None
        assert (await wire.ask()).cluster_id == "here"
        await asyncio.sleep(10)
        assert not wire.connection.closed

    in_virtual_time(main())


def test_unencodable_request_does_not_affect_the_connection() -> None:
    async def main() -> None:
        wire = Wire()
        with pytest.raises(TypeError):
            wire.connection.send(HeartbeatRequest(group_id=None), 4, 1000)  # type: ignore[arg-type]
        assert (await wire.ask()).cluster_id == "here"

    in_virtual_time(main())


def test_close_fails_requests_in_flight_and_later_ones() -> None:
    async def main() -> None:
        wire = Wire()
        future = wire.ask()
        wire.connection.close("enough")
        wire.connection.close("again")
        with pytest.raises(KafkaConnectionError, match="was closed: enough"):
            await future
        with pytest.raises(KafkaConnectionError, match="is closed"):
            await wire.ask()
        assert len(wire.lost) == 1

    in_virtual_time(main())


# ---- versions


def test_highest_common_version_is_used() -> None:
    async def main() -> None:
        wire = Wire(FakeBroker(1, "host", 9092, versions={ApiKey.METADATA: (2, 7), ApiKey.HEARTBEAT: (3, 99)}))
        await wire.connection.negotiate("1.0", 1000)
        version_for = wire.connection.version_for
        assert version_for(ApiKey.METADATA) == 7
        assert version_for(ApiKey.METADATA, max_version=5) == 5
        assert version_for(ApiKey.HEARTBEAT) == 4
        assert version_for(ApiKey.METADATA, min_version=7) == 7
        with pytest.raises(
            UnsupportedVersionError, match=r"Metadata versions 2 to 7, but this client requires one of 8 to 13"
        ):
            version_for(ApiKey.METADATA, min_version=8)
        with pytest.raises(UnsupportedVersionError, match=r"requires one of 0 to 1"):
            version_for(ApiKey.METADATA, max_version=1)

    in_virtual_time(main())


def test_unsupported_api_raises() -> None:
    async def main() -> None:
        wire = Wire()
        with pytest.raises(UnsupportedVersionError, match=r"host:9092 \(broker 1\) does not support Heartbeat"):
            wire.connection.version_for(ApiKey.HEARTBEAT)

    in_virtual_time(main())


@pytest.mark.parametrize("highest", range(5))
def test_api_versions_falls_back_to_older_versions(highest: int) -> None:
    async def main() -> None:
        wire = Wire(FakeBroker(1, "host", 9092, versions={ApiKey.API_VERSIONS: (0, highest)}))
        await wire.connection.negotiate("1.0", 1000)
        assert wire.broker.asked(ApiKey.API_VERSIONS)[-1].version == highest
        assert wire.connection.version_for(ApiKey.HEARTBEAT) == 4
        wire.broker.on(ApiKey.HEARTBEAT, lambda _: HeartbeatResponse(error_code=0))
        await wire.connection.send(HeartbeatRequest(group_id="g"), 4, 1000)

    in_virtual_time(main())


def test_client_software_name_and_version_are_sent() -> None:
    async def main() -> None:
        wire = Wire()
        await wire.connection.negotiate("1.2.3", 1000)
        (request,) = wire.broker.asked(ApiKey.API_VERSIONS)
        assert request.message.client_software_name == "headrace"
        assert request.message.client_software_version == "1.2.3"

    in_virtual_time(main())
