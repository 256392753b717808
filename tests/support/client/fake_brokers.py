"""Fake brokers without sockets, for tests of the clients: the test determines responses and their timing.

network = FakeNetwork()
broker = network.add(1)
broker.on(ApiKey.METADATA, lambda request: MetadataResponse(...))
pool = BrokerPool([broker.address], NetConfig(), dialer=network)
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.common.errors import UnsupportedVersionError
from headrace.net.broker_connection import BrokerConnection
from headrace.protocol import APIS, ApiKey, Message, decode, decode_request_header, encode_response
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Answer = Message | bytes | None
"""A response, raw bytes in its place, or nothing."""
Handler = Callable[[Any], Answer]


@dataclass
class Received:
    """A request that a broker received."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    message: Any
    at: float
    connection: FakeTransport


class FakeTransport:
    """The broker's end of a connection: decodes requests and responds after `latency` seconds."""

    def __init__(self, broker: FakeBroker, connection: BrokerConnection):
        self.broker = broker
        self.connection = connection
        self.closed = False
        self.sent = b""
        self.outbox: list[bytes] = []
        self._pending = b""
        self.woken_at: list[int] = []
        self._loop = asyncio.get_running_loop()

    # ---- called by the client

    def send(self, reply: Any) -> None:
        data = reply if isinstance(reply, bytes | bytearray | memoryview) else b"".join(reply)
        self.sent += bytes(data)
        self._pending += bytes(data)
        while len(self._pending) >= 4 and len(self._pending) >= 4 + (
            size := struct.unpack_from(">i", self._pending)[0]
        ):
            frame, self._pending = self._pending[4 : 4 + size], self._pending[4 + size :]
            self.broker.received(frame, self)

    def resume_reading(self) -> None: ...

    def wake_at(self, size: int) -> None:
        self.woken_at.append(size)

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self.broker.transports.remove(self)
            self._loop.call_soon(self.connection.connection_lost, None)

    # ---- the broker

    def deliver(self, data: bytes, chunk: int | None = None) -> None:
        """Sends bytes to the client in chunks of a size."""
        view = memoryview(data)
        while view and not self.closed:
            buffer = self.connection.get_buffer(-1)
            size = min(len(view), len(buffer), chunk or len(view))
            buffer[:size] = view[:size]
            view = view[size:]
            self.connection.buffer_updated(size)

    def hang_up(self) -> None:
        if not self.closed:
            self.connection.eof_received()


@dataclass
class FakeBroker:
    id: int
    host: str
    port: int
    rack: str | None = None
    latency: float = 0.001
    versions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The supported API versions, in place of all."""
    accepts: bool = True
    """False: refuses connections."""
    hangs: bool = False
    """True: connections are never established."""
    chunk: int | None = None
    announces_all: bool = False
    """True: announces the requests between brokers, too."""
    requests: list[Received] = field(default_factory=list)
    transports: list[FakeTransport] = field(default_factory=list)
    dials: list[float] = field(default_factory=list)
    handlers: dict[int, Handler] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    def on(self, api_key: ApiKey, handler: Handler) -> None:
        self.handlers[api_key] = handler

    def serves(self, api_key: int) -> tuple[int, int]:
        if api_key in self.versions:
            return self.versions[api_key]
        api = APIS[ApiKey(api_key)]
        return api.first_version, api.last_version

    def asked(self, api_key: ApiKey) -> list[Received]:
        return [each for each in self.requests if each.api_key == api_key]

    def received(self, frame: bytes, transport: FakeTransport) -> None:
        header = decode_request_header(frame)
        api = APIS[ApiKey(header.api_key)]
        loop = asyncio.get_running_loop()
        low, high = self.serves(header.api_key)
        if api.key == ApiKey.API_VERSIONS and not low <= header.api_version <= high:
            refusal = ApiVersionsResponse(
                error_code=UnsupportedVersionError.code,
                api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high)],
            )
            data = encode_response(refusal, 0, header.correlation_id)
            self._answer_later(transport, data)
            return
        assert low <= header.api_version <= high, f"{api} in version {header.api_version}, not {low} to {high}"
        message = decode(api.request, header.api_version, frame, header.body_position)
        self.requests.append(
            Received(
                api.key,
                header.api_version,
                header.correlation_id,
                header.client_id,
                message,
                loop.time(),
                transport,
            )
        )
        handler = self.handlers.get(api.key)
        answer: Answer
        if handler is not None:
            answer = handler(message)
        elif api.key == ApiKey.API_VERSIONS:
            answer = self.api_versions()
        else:
            raise AssertionError(f"the test has not said what broker {self.id} answers to {api.name}")
        if isinstance(answer, Message):
            encoded = encode_response(answer, header.api_version, header.correlation_id)
            answer = encoded if isinstance(encoded, bytes) else b"".join(encoded)  # type: ignore[arg-type]
        if answer is not None:
            self._answer_later(transport, answer)

    def _answer_later(self, transport: FakeTransport, data: Any) -> None:
        """Keeps the order of responses, which timers of the same time do not."""
        transport.outbox.append(bytes(data))
        asyncio.get_running_loop().call_later(self.latency, self._answer, transport)

    def _answer(self, transport: FakeTransport) -> None:
        data = transport.outbox.pop(0)
        if not transport.closed:
            transport.deliver(data, self.chunk)

    def api_versions(self) -> ApiVersionsResponse:
        hidden = () if self.announces_all else (4, 5, 6, 7)
        keys = [api for api in APIS if api not in hidden and (api not in self.versions or self.versions[api])]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=self.serves(key)[0], max_version=self.serves(key)[1])
                for key in keys
            ]
        )

    def hang_up(self) -> None:
        """Closes all its connections."""
        for transport in tuple(self.transports):
            transport.hang_up()


class FakeNetwork:
    """The dialer: connects to fake brokers by address."""

    def __init__(self) -> None:
        self.brokers: dict[tuple[str, int], FakeBroker] = {}

    def add(self, broker_id: int, host: str | None = None, port: int = 9092, **more: Any) -> FakeBroker:
        broker = FakeBroker(broker_id, host or f"host{broker_id}", port, **more)
        self.brokers[broker.address] = broker
        return broker

    async def dial(self, host: str, port: int, attempt: int, connection: BrokerConnection) -> None:
        broker = self.brokers.get((host, port))
        if broker is not None:
            broker.dials.append(asyncio.get_running_loop().time())
            if broker.hangs:
                await asyncio.Event().wait()
        await asyncio.sleep(0.001)
        if broker is None or not broker.accepts:
            raise ConnectionRefusedError(111, "Connection refused")
        transport = FakeTransport(broker, connection)
        broker.transports.append(transport)
        connection.connection_made(transport)


def partition(index: int, leader: int = 1, epoch: int = 0, error: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[leader],
        isr_nodes=[leader],
    )


class FakeCluster:
    """Brokers that share one list of topics for Metadata."""

    def __init__(self, brokers: int = 1):
        self.network = FakeNetwork()
        self.brokers = [self.network.add(number + 1) for number in range(brokers)]
        self.members = list(self.brokers)
        """The brokers in Metadata responses."""
        self.topics: dict[str, MetadataResponseTopic] = {}
        self.auto_create = False
        for broker in self.brokers:
            broker.on(ApiKey.METADATA, self.metadata)

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [self.brokers[0].address]

    def set_topic(self, name: str, partitions: int | Iterable[MetadataResponsePartition] = 1, **more: Any) -> None:
        if isinstance(partitions, int):
            partitions = [partition(index) for index in range(partitions)]
        self.topics[name] = MetadataResponseTopic(name=name, partitions=list(partitions), **more)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        if request.topics is None:
            topics = list(self.topics.values())
        else:
            topics = [self._topic(each.name, each.topic_id) for each in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
                for each in self.members
            ],
            cluster_id="the-cluster",
            controller_id=self.members[0].id if self.members else -1,
            topics=topics,
        )

    def _topic(self, name: str | None, topic_id: Any) -> MetadataResponseTopic:
        if name is None:
            found = [each for each in self.topics.values() if each.topic_id == topic_id]
            return found[0] if found else MetadataResponseTopic(name=None, topic_id=topic_id, error_code=100)
        return self.topics.get(name) or MetadataResponseTopic(name=name, error_code=3)

    @property
    def asked(self) -> list[list[str] | None]:
        """The topics of each Metadata request, in order; None stands for all."""
        requests = [each for broker in self.brokers for each in broker.asked(ApiKey.METADATA)]
        requests.sort(key=lambda each: each.at)
        return [
            None if each.message.topics is None else [topic.name for topic in each.message.topics] for each in requests
        ]
