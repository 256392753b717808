"""The store as a node: sessions, lost connections, watches."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

import pytest

from headrace.cluster.store import NodeExists, SessionExpired, SessionState, WatchEvent
from headrace.common.ids import make_random
from headrace.testing.simulation.loop import Node, VirtualLoop
from headrace.testing.simulation.network import Network
from headrace.testing.simulation.store import STORE, StoreClient, StoreServer


class Setup:
    def __init__(self, loop: VirtualLoop):
        self.loop = loop
        self.network = Network(loop, make_random(3), contextvars.Context())
        self.server = StoreServer(loop, self.network)
        self.node = Node(loop, "client")

    async def client(self) -> StoreClient:
        return await self.server.client(self.node).opened()


def run(scenario: Callable[[Setup], Awaitable[object]]) -> None:
    loop = VirtualLoop(make_random(1))

    async def start() -> None:
        await scenario(Setup(loop))

    try:
        loop.run_until_complete(start())
    finally:
        loop.close()


def test_requests_and_errors() -> None:
    async def scenario(setup: Setup) -> None:
        client = await setup.client()
        await client.create("/a", b"1")
        with pytest.raises(NodeExists):
            await client.create("/a")
        await client.set("/a", b"2", 0)
        assert (await client.get("/a"))[0] == b"2"
        assert await client.children("/") == ["a"]
        await client.delete("/a")
        assert await client.exists("/a") is None

    run(scenario)


def test_watches_fire_once() -> None:
    async def scenario(setup: Setup) -> None:
        client = await setup.client()
        events: list[WatchEvent] = []
        await client.create("/a", b"1")
        await client.get("/a", events.append)
        await client.set("/a", b"2")
        await client.set("/a", b"3")
        await asyncio.sleep(1)
        assert len(events) == 1

    run(scenario)


def test_a_session_survives_a_short_partition_and_its_watches_too() -> None:
    async def scenario(setup: Setup) -> None:
        client = await setup.client()
        events: list[WatchEvent] = []
        await client.create("/mine", ephemeral=True)
        await setup.server.store.create("/a")
        await client.exists("/a", events.append)
        setup.network.partition("client", STORE)
        await asyncio.sleep(1)
        await setup.server.store.set("/a", b"changed")
        reading = setup.node.run(client.get("/a"))
        await asyncio.sleep(3)
        setup.network.heal()
        assert (await reading)[0] == b"changed"
        assert len(events) == 1
        assert await setup.server.store.exists("/mine") is not None

    run(scenario)


def test_a_session_expires_after_a_long_partition() -> None:
    async def scenario(setup: Setup) -> None:
        client = await setup.client()
        states: list[SessionState] = []
        client.add_session_listener(states.append)
        await client.create("/mine", ephemeral=True)
        first_session = client.session_id
        setup.network.partition("client", STORE)
        await asyncio.sleep(10)
        assert await setup.server.store.exists("/mine") is None
        assert not states  # the client cannot know
        writing = setup.node.run(client.create("/b"))
        await asyncio.sleep(1)
        setup.network.heal()
        with pytest.raises(SessionExpired):
            await writing
        await client.create("/mine", ephemeral=True)
        assert states == [SessionState.LOST, SessionState.ESTABLISHED]
        assert client.session_id != first_session

    run(scenario)


def test_events_of_an_expired_session_do_not_count_in_the_next_one() -> None:
    async def scenario(setup: Setup) -> None:
        client = await setup.client()
        await setup.server.store.create("/a")
        events: list[WatchEvent] = []
        for _ in range(3):
            await client.get("/a", events.append)
            await setup.server.store.set("/a", b"changed")
            await asyncio.sleep(0.1)
        assert len(events) == 3
        setup.server.expire(client.session_id)
        setup.network.slow_links[STORE, "client"] = 3.0  # pings are sent before the new session is known
        await asyncio.sleep(30)
        assert not setup.loop.errors

    run(scenario)


def test_a_paused_client_learns_of_its_expired_session() -> None:
    async def scenario(setup: Setup) -> None:
        client = await setup.client()
        states: list[SessionState] = []
        client.add_session_listener(states.append)
        setup.node.pause()
        await asyncio.sleep(10)
        setup.node.resume()
        await asyncio.sleep(1)
        assert states == [SessionState.LOST, SessionState.ESTABLISHED]
        await client.create("/mine", ephemeral=True)

    run(scenario)


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_connection_lost_during_a_write(takes_effect: bool) -> None:
    async def scenario(setup: Setup) -> None:
        client = await setup.client()
        await client.create("/a", b"1")
        breaks = setup.server.break_after if takes_effect else setup.server.break_before
        breaks["client"] = None
        await client.create("/b")
        breaks["client"] = None
        stat = await client.set("/a", b"2", 0)
        assert stat.version == 1
        assert (await client.get("/a"))[0] == b"2"
        assert client.lost_writes == 2

    run(scenario)


def test_closing_ends_the_session_at_once() -> None:
    async def scenario(setup: Setup) -> None:
        client = await setup.client()
        await client.create("/mine", ephemeral=True)
        await client.close()
        assert await setup.server.store.exists("/mine") is None
        with pytest.raises(SessionExpired):
            await client.get("/")

    run(scenario)
