"""Network partitions: blocked directions, and connections between brokers that apply them."""

import asyncio
from typing import Any

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.common.errors import HeadraceError
from headrace.testing.links import STORE, LinkDialer, Links

PORTS = {9001: 1, 9002: 2}


class FakeTransport:
    """Records what is sent, and whether it reads."""

    def __init__(self, protocol: Any):
        self.protocol = protocol
        self.sent: list[bytes] = []
        self.reads = False
        self.aborted = False
        self.full = False

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)
        if self.full:
            self.protocol.pause_writing()

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def wake_at(self, size: int) -> None: ...

    def abort(self) -> None:
        self.aborted = True


class FakeConnection:
    """Sends frames while writing is not paused, as a `BrokerConnection` does."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.paused = False
        self.queue: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.resume_reading()

    def send(self, frame: bytes) -> None:
        if self.paused:
            self.queue.append(frame)
        else:
            self.transport.send(frame)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.queue:
            queue, self.queue = self.queue, []
            self.transport.send(b"".join(queue))


class FakeDialer:
    def __init__(self) -> None:
        self.transports: list[FakeTransport] = []

    async def dial(self, host: str, port: int, attempt: int, connection: Any) -> None:
        if port == 9009:
            raise ConnectionRefusedError
        self.transports.append(FakeTransport(connection))
        connection.connection_made(self.transports[-1])


class Network:
    """A broker's dialer, and one connection to broker 2."""

    def __init__(self) -> None:
        self.links = Links()
        self.fake = FakeDialer()
        self.dialer = LinkDialer(1, self.links, PORTS.get, self.fake)
        self.links.add_listener(self.dialer.links_changed)

    async def connect(self, port: int = 9002) -> tuple[FakeConnection, FakeTransport]:
        connection = FakeConnection()
        await self.dialer.dial("127.0.0.1", port, 0, connection)
        return connection, self.fake.transports[-1]


def test_links() -> None:
    links = Links()
    links.block(1, 2)
    links.block(STORE, 1)
    assert (links.is_blocked(1, 2), links.is_blocked(2, 1)) == (True, False)
    assert links.blocked == {(1, 2), (STORE, 1)}
    links.heal()
    assert not links.blocked
    with pytest.raises(HeadraceError, match="two different nodes"):
        links.block(1, 1)


def test_listeners() -> None:
    links = Links()
    changes: list[int] = []
    listener = lambda: changes.append(len(links.blocked))  # noqa: E731
    links.add_listener(listener)
    links.block(1, 2)
    links.heal()
    links.remove_listener(listener)
    links.remove_listener(listener)
    links.block(1, 2)
    assert changes == [1, 0]


@async_test
async def test_open_link_passes_frames() -> None:
    network = Network()
    connection, transport = await network.connect()
    connection.send(b"a")
    connection.send(b"b")
    assert (transport.sent, transport.reads) == ([b"a", b"b"], True)


@async_test
async def test_requests_arrive_after_the_partition() -> None:
    network = Network()
    connection, transport = await network.connect()
    network.links.block(1, 2)
    for frame in (b"a", b"b", b"c"):
        connection.send(frame)
    assert (transport.sent, transport.reads) == ([], True)
    network.links.heal()
    assert transport.sent == [b"a", b"bc"]
    connection.send(b"d")
    assert transport.sent[-1] == b"d"


@async_test
async def test_full_socket_after_the_partition() -> None:
    network = Network()
    connection, transport = await network.connect()
    network.links.block(1, 2)
    connection.send(b"a")
    connection.send(b"b")
    transport.full = True
    network.links.heal()
    assert (transport.sent, connection.paused) == ([b"a"], True)
    transport.full = False
    transport.protocol.resume_writing()
    assert (transport.sent, connection.paused) == ([b"a", b"b"], False)


@async_test
async def test_socket_becomes_writable_during_the_partition() -> None:
    network = Network()
    connection, transport = await network.connect()
    transport.full = True
    connection.send(b"a")
    network.links.block(1, 2)
    transport.full = False
    transport.protocol.resume_writing()
    connection.send(b"b")
    assert (transport.sent, connection.paused) == ([b"a"], True)
    network.links.heal()
    assert transport.sent == [b"a", b"b"]


@async_test
async def test_responses_are_read_after_the_partition() -> None:
    network = Network()
    connection, transport = await network.connect()
    network.links.block(2, 1)
    connection.send(b"a")
    assert (transport.sent, transport.reads) == ([b"a"], False)
    network.links.heal()
    assert transport.reads


@pytest.mark.parametrize("direction", [(1, 2), (2, 1)])
def test_new_connections_wait_for_both_directions(direction: tuple[int, int]) -> None:
    @async_test
    async def check() -> None:
        network = Network()
        network.links.block(*direction)
        dialing = asyncio.create_task(network.connect())
        await asyncio.sleep(0)
        await network.connect(9001 + 7)  # not a broker
        network.links.block(1, 3)
        await asyncio.sleep(0)
        assert not dialing.done()
        network.links.heal()
        await dialing

    check()


@async_test
async def test_peer_learns_of_a_closed_connection_after_the_partition() -> None:
    network = Network()
    connection, transport = await network.connect()
    network.links.block(1, 2)
    connection.send(b"a")
    connection.transport.abort()
    assert not transport.aborted
    network.links.heal()
    assert transport.aborted
    assert transport.sent == []

    connection, transport = await network.connect()
    connection.transport.abort()
    assert transport.aborted


@async_test
async def test_close_closes_sockets_during_a_partition() -> None:
    network = Network()
    _, transport = await network.connect()
    network.links.block(1, 2)
    network.dialer.close()
    assert transport.aborted


@async_test
async def test_failed_dial_is_raised() -> None:
    network = Network()
    PORTS[9009] = 9
    try:
        with pytest.raises(ConnectionRefusedError):
            await network.connect(9009)
    finally:
        del PORTS[9009]
    network.links.block(1, 9)
