"""The virtual network: delivery in order, partitions, broken connections."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.common.ids import make_random
from headrace.common.metrics import Metrics
from headrace.net.connection import ServerConnection
from headrace.net.limits import Limits
from headrace.net.listeners import Listener
from headrace.testing.clock import ManualClock
from headrace.testing.simulation.loop import Node, VirtualLoop
from headrace.testing.simulation.network import Network, Pipe, VirtualServer


class Echo:
    """Responds to a frame with the same frame."""

    def __init__(self) -> None:
        self.lost = 0

    def connection_made(self, connection: ServerConnection) -> None: ...

    def frame_received(self, connection: ServerConnection, frame: memoryview) -> None:
        connection.expect_response().send(len(frame).to_bytes(4, "big") + bytes(frame))

    def connection_lost(self, connection: ServerConnection, error: Exception | None) -> None:
        self.lost += 1


class Peer(asyncio.BufferedProtocol):
    """A client that collects what it receives."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended = False
        self.lost = False
        self._buffer = bytearray(100)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    def eof_received(self) -> bool:
        self.ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Setup:
    def __init__(self, loop: VirtualLoop):
        self.network = Network(loop, make_random(3), contextvars.Context())
        self.server_node, self.client_node = Node(loop, "server"), Node(loop, "client")
        self.handler = Echo()
        self.server = VirtualServer(
            self.network,
            self.server_node,
            [Listener("PLAINTEXT", "server", 9092)],
            self.handler,
            Limits(),
            ManualClock(),
            Metrics(ManualClock()),
        )
        self.peer = Peer()

    async def connect(self) -> Any:
        await self.server_node.run(self.server.start())
        transport = await self.network.dial(self.client_node, "server", 9092, self.peer)
        transport.resume_reading()
        return transport


def run(scenario: Callable[[Setup], Awaitable[object]]) -> None:
    loop = VirtualLoop(make_random(1))

    async def start() -> None:
        await scenario(Setup(loop))

    try:
        loop.run_until_complete(start())
    finally:
        loop.close()


FRAME = b"\0\0\0\5hello"


def test_frames_arrive_in_order() -> None:
    async def scenario(setup: Setup) -> None:
        transport = await setup.connect()
        for _ in range(100):
            transport.send([FRAME[:3], FRAME[3:]])
        await asyncio.sleep(1)
        assert bytes(setup.peer.received) == FRAME * 100

    run(scenario)


def test_without_a_listener_the_connection_is_refused() -> None:
    async def scenario(setup: Setup) -> None:
        with pytest.raises(ConnectionRefusedError, match=r"no process listens on server:9092"):
            await setup.network.dial(setup.client_node, "server", 9092, setup.peer)

    run(scenario)


@pytest.mark.parametrize("direction", [("client", "server"), ("server", "client")])
def test_a_partition_delays_everything_until_it_heals(direction: tuple[str, str]) -> None:
    async def scenario(setup: Setup) -> None:
        transport = await setup.connect()
        setup.network.block(*direction)
        transport.send(FRAME)
        dialling = setup.client_node.run(setup.network.dial(setup.client_node, "server", 9092, Peer()))
        await asyncio.sleep(60)
        assert not setup.peer.received
        assert not dialling.done()
        setup.network.heal(*direction)
        await asyncio.sleep(1)
        assert bytes(setup.peer.received) == FRAME
        assert dialling.done()

    run(scenario)


def test_a_killed_process_closes_its_connections() -> None:
    async def scenario(setup: Setup) -> None:
        await setup.connect()
        setup.server_node.kill()
        setup.network.node_killed(setup.server_node, silently=False)
        await asyncio.sleep(1)
        assert setup.peer.ended
        assert setup.peer.lost
        assert not setup.handler.lost
        with pytest.raises(ConnectionRefusedError):
            await setup.network.dial(setup.client_node, "server", 9092, setup.peer)

    run(scenario)


def test_after_a_power_loss_peers_notice_nothing_until_the_restart() -> None:
    async def scenario(setup: Setup) -> None:
        transport = await setup.connect()
        setup.server_node.kill()
        setup.network.node_killed(setup.server_node, silently=True)
        transport.send(FRAME)
        await asyncio.sleep(60)
        assert not setup.peer.lost
        setup.network.node_restarted("server")
        await asyncio.sleep(1)
        assert setup.peer.lost

    run(scenario)


def test_both_sides_learn_of_a_broken_connection() -> None:
    async def scenario(setup: Setup) -> None:
        await setup.connect()
        await asyncio.sleep(1)
        setup.network.break_connections("server", "client")
        await asyncio.sleep(1)
        assert setup.peer.lost
        assert setup.handler.lost == 1
        assert not setup.network.connections

    run(scenario)


def test_closing_the_server_closes_connections() -> None:
    async def scenario(setup: Setup) -> None:
        await setup.connect()
        await asyncio.sleep(1)
        await setup.server_node.run(setup.server.close())
        await asyncio.sleep(1)
        assert setup.peer.lost
        assert not setup.server.connections
        assert not setup.network.connections

    run(scenario)


def test_connections_wait_while_the_server_is_paused() -> None:
    async def scenario(setup: Setup) -> None:
        setup.server.pause()
        transport = await setup.connect()
        transport.send(FRAME)
        await asyncio.sleep(1)
        assert not setup.peer.received
        setup.server_node.call(setup.server.resume)
        await asyncio.sleep(1)
        assert bytes(setup.peer.received) == FRAME

    run(scenario)


def test_what_arrives_at_a_paused_node_waits() -> None:
    async def scenario(setup: Setup) -> None:
        arrived: list[int] = []
        pipe = Pipe(setup.network, setup.client_node, setup.server_node, arrived.append)
        setup.server_node.pause()
        for number in range(10):
            pipe.send(number)
            await asyncio.sleep(1)
        assert not arrived
        setup.server_node.resume()
        await asyncio.sleep(0.1)
        assert arrived == list(range(10))

    run(scenario)
