"""Sessions over a socket: lost connections, silent clients, a lost server. The contract tests have the rest."""

import asyncio
import os
import random
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.cluster.fake_cluster import async_test, until
from tests.support.seeds import choose_seed

from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.remote.client import RemoteStore
from headrace.cluster.remote.server import StoreServer
from headrace.cluster.store import (
    ConnectionLoss,
    EventKind,
    NodeExists,
    SessionExpired,
    SessionState,
    StoreError,
    WatchEvent,
)
from headrace.testing.clock import ManualClock

LONG_MS = 60_000
SHORT_MS = 200


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[EmbeddedStore, StoreServer]]:
    store = EmbeddedStore(directory / "store.sqlite", ManualClock())
    server = StoreServer(store, directory / "s")
    await server.start()
    try:
        yield store, server
    finally:
        await server.close()
        await store.close()


def break_connections(server: StoreServer) -> None:
    for connection in tuple(server.connections):
        connection.close()


async def poll(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_socket_is_private_and_replaces_an_old_one(tmp_path: Path) -> None:
    async def body() -> None:
        (tmp_path / "s").touch()
        async with serving(tmp_path) as (_, server):
            assert stat.S_IMODE(os.stat(server.path).st_mode) == 0o600
        assert not server.path.exists()

    async_test(body)()


def test_long_path_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        store = EmbeddedStore(None, ManualClock())
        with pytest.raises(StoreError, match="longer than 107 bytes"):
            await StoreServer(store, tmp_path / ("x" * 110)).start()
        await store.close()

    async_test(body)()


def test_session_survives_lost_connections(tmp_path: Path) -> None:
    """Writes, reads and watches while connections break at any moment: nothing is lost, nothing happens twice."""
    seed = choose_seed()
    chance = random.Random(seed)

    async def body() -> None:
        async with serving(tmp_path) as (store, server):
            client = await RemoteStore.open(server.path, "broker 1", LONG_MS)
            session_id = client.session_id
            states: list[SessionState] = []
            client.add_session_listener(states.append)
            await client.create("/live", ephemeral=True)
            await client.create("/n", b"0")
            events: list[WatchEvent] = []
            writers = [asyncio.create_task(count_up(client)) for _ in range(4)]
            watcher = asyncio.create_task(watch_all(client, events))
            while not all(writer.done() for writer in writers):
                await asyncio.sleep(chance.random() * 0.02)
                break_connections(server)
            written = sum([await writer for writer in writers])
            data, found = await store.get("/n")
            # Each executed compare-and-set was acknowledged once.
            assert (int(data), found.version) == (written, written), f"seed {seed}"
            await watcher
            assert all(event == WatchEvent(EventKind.CHANGED, "/n") for event in events)
            assert client.session_id == session_id
            assert states == []
            assert await store.exists("/live") is not None
            await client.close()
            assert await store.exists("/live") is None

    async_test(body)()


async def count_up(client: RemoteStore) -> int:
    """Increments a number by compare-and-set. Returns how often that succeeded."""
    done = 0
    while done < 20:
        data, found = await client.get("/n")
        try:
            await client.set("/n", b"%d" % (int(data) + 1), found.version)
        except StoreError:
            continue
        done += 1
    return done


async def watch_all(client: RemoteStore, events: list[WatchEvent]) -> None:
    """Follows a node by watches until it has its last value."""
    while True:
        changed = asyncio.Event()

        def on_change(event: WatchEvent, changed: asyncio.Event = changed) -> None:
            events.append(event)
            changed.set()

        data, _ = await client.get("/n", on_change)
        if int(data) == 80:
            return
        await changed.wait()


def test_write_without_response_is_executed_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (_, server):
            client = await RemoteStore.open(server.path, "broker 1", LONG_MS)
            writing = asyncio.create_task(client.create("/once"))
            await until(lambda: [session for session in server._sessions.values() if session.last_request])
            break_connections(server)
            assert await writing == "/once"
            with pytest.raises(NodeExists):
                await client.create("/once")
            await client.close()

    async_test(body)()


def test_silent_client_loses_its_session(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (store, server):
            client = await RemoteStore.open(server.path, "broker 1", SHORT_MS)
            states: list[SessionState] = []
            client.add_session_listener(states.append)
            await client.create("/live", ephemeral=True)
            first = client.session_id
            client._send = lambda message: None  # type: ignore[method-assign]
            blocked = asyncio.create_task(client.get("/live"))
            await poll(lambda: SessionState.LOST in states)
            with pytest.raises(SessionExpired):
                await blocked
            assert await store.exists("/live") is None
            del client._send
            client._connect()
            await poll(lambda: SessionState.ESTABLISHED in states)
            assert states == [SessionState.LOST, SessionState.ESTABLISHED]
            assert client.session_id != first
            await client.create("/live", ephemeral=True)
            await client.close()

    async_test(body)()


def test_pings_keep_a_session(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (store, server):
            client = await RemoteStore.open(server.path, "broker 1", 2_000)
            other = await RemoteStore.open(server.path, "broker 2", SHORT_MS)
            await client.create("/live", ephemeral=True)
            other._send = lambda message: None  # type: ignore[method-assign]
            # By the time the silent session has expired a few times over, the other one has lived on its pings.
            for _ in range(3):
                lost = asyncio.Event()
                other.add_session_listener(lambda state, lost=lost: lost.set())  # type: ignore[misc]
                await lost.wait()
                del other._send
                other._connect()
                await poll(lambda: other._is_connected)
                other._send = lambda message: None  # type: ignore[method-assign]
            assert await store.exists("/live") is not None
            del other._send
            await client.close()
            await other.close()

    async_test(body)()


def test_dead_process_loses_its_session_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (store, server):
            dead = await RemoteStore.open(server.path, "broker 1", LONG_MS)
            alive = await RemoteStore.open(server.path, "broker 2", LONG_MS)
            await dead.create("/dead", ephemeral=True)
            await alive.create("/alive", ephemeral=True)
            dead.abandon()
            await server.end_sessions("broker 1")
            assert await store.children("/") == ["alive"]
            await alive.close()

    async_test(body)()


def test_restarted_server_keeps_the_nodes_but_not_the_sessions(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (_, server):
            client = await RemoteStore.open(server.path, "broker 1", LONG_MS)
            states: list[SessionState] = []
            client.add_session_listener(states.append)
            await client.create("/kept", b"x")
            await client.create("/live", ephemeral=True)
            # The server dies without a word to its clients.
            for session in server._sessions.values():
                await session.store.close()
            server._sessions.clear()
        waiting = asyncio.create_task(client.get("/kept"))
        async with serving(tmp_path) as _:
            await poll(lambda: SessionState.ESTABLISHED in states)
            with pytest.raises(SessionExpired):
                await waiting
            assert (await client.get("/kept"))[0] == b"x"
            assert await client.exists("/live") is None
            await client.close()

    async_test(body)()


def test_abandoned_session_fails_every_call(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (_, server):
            client = await RemoteStore.open(server.path, "broker 1", LONG_MS)
            await client.create("/n")
        waiting = asyncio.create_task(client.get("/n"))
        await asyncio.sleep(0)
        client.abandon()
        with pytest.raises(SessionExpired, match="process of the coordination store is gone"):
            await waiting
        with pytest.raises(SessionExpired):
            await client.get("/n")
        await client.close()

    async_test(body)()


def test_no_server(tmp_path: Path) -> None:
    async def body() -> None:
        with pytest.raises(ConnectionLoss, match="Cannot connect to the coordination store"):
            await RemoteStore.open(tmp_path / "none", "broker 1", LONG_MS, connect_timeout_ms=50)

    async_test(body)()


def test_invalid_messages_close_the_connection(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as (_, server):
            for data in (b"\xff" * 10, b"\0\0\0\x02[]", b'\0\0\0\x0b["connect"]'):
                reader, writer = await asyncio.open_unix_connection(str(server.path))
                writer.write(data)
                assert await reader.read() == b""
                writer.close()

    async_test(body)()
