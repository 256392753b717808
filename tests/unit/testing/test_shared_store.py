"""Sessions of a shared store: threads, expiry, blocked links. `cluster/test_store_contract.py` tests its calls."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster.store import ConnectionLoss, NodeExists, SessionExpired, SessionState, WatchEvent
from headrace.testing.links import STORE
from headrace.testing.shared_store import SharedStore, SharedStoreSession

NEVER_MS = 60_000
SOON_MS = 200


def store_test(function: Callable[[SharedStore], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        store = SharedStore()
        try:
            await function(store)
        finally:
            await asyncio.to_thread(store.close)

    return async_test(run)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def deleted(store: SharedStore, path: str) -> None:
    """Waits until a node is deleted."""
    async with asyncio.timeout(20):
        while await asyncio.to_thread(lambda: store.run(store.tree.exists(path))) is not None:
            await asyncio.sleep(0.005)


class OtherLoop:
    """Runs work on a second event loop, like that of a broker."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    async def run(self, work: Awaitable[Any]) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@store_test
async def test_watches_are_called_on_the_loop_of_their_session(store: SharedStore) -> None:
    mine = await store.open_session(1, NEVER_MS)
    other = OtherLoop()
    try:
        theirs: SharedStoreSession = await other.run(store.open_session(2, NEVER_MS))
        called: Future[tuple[WatchEvent, int]] = Future()
        await mine.create("/a")
        await other.run(theirs.get("/a", lambda event: called.set_result((event, threading.get_ident()))))
        await mine.set("/a", b"1")
        event, thread = await asyncio.wrap_future(called)
        assert (event.path, thread) == ("/a", other.thread.ident)
        assert (await other.run(theirs.get("/a")))[0] == b"1"
        await other.run(theirs.close())
    finally:
        other.end()
    await mine.close()


@store_test
async def test_session_expires_while_its_loop_is_blocked(store: SharedStore) -> None:
    other = OtherLoop()
    blocked = threading.Event()
    try:
        theirs: SharedStoreSession = await other.run(store.open_session(2, SOON_MS))
        states: list[SessionState] = []
        theirs.add_session_listener(states.append)
        await other.run(theirs.create("/mine", ephemeral=True))
        first = theirs.session_id
        other.loop.call_soon_threadsafe(blocked.wait)
        await deleted(store, "/mine")
        assert states == []
        blocked.set()
        await until(lambda: SessionState.ESTABLISHED in states)
        assert states == [SessionState.LOST, SessionState.ESTABLISHED]
        assert theirs.session_id != first
        await other.run(theirs.create("/mine", ephemeral=True))
        await other.run(theirs.close())
    finally:
        blocked.set()
        other.end()


@store_test
async def test_calls_wait_during_a_partition(store: SharedStore) -> None:
    session = await store.open_session(1, NEVER_MS)
    for sender, receiver in [(1, STORE), (STORE, 1)]:
        store.links.block(sender, receiver)
        call = asyncio.create_task(session.create(f"/from-{sender}"))
        assert not (await asyncio.wait((call,), timeout=0.05))[0]
        store.links.heal()
        assert await call == f"/from-{sender}"
    store.links.block(2, STORE)
    await session.create("/other-links-are-open")
    await session.close()


@store_test
async def test_session_expires_during_a_partition(store: SharedStore) -> None:
    session = await store.open_session(1, SOON_MS)
    states: list[SessionState] = []
    session.add_session_listener(states.append)
    await session.create("/mine", ephemeral=True)
    store.links.block(1, STORE)
    call = asyncio.create_task(session.create("/never"))
    await deleted(store, "/mine")
    with pytest.raises(SessionExpired):  # the store can reach the session
        await call
    assert states == [SessionState.LOST]
    with pytest.raises(SessionExpired):
        await session.get("/")
    store.links.heal()
    await until(lambda: SessionState.ESTABLISHED in states)
    assert await session.exists("/never") is None
    await session.close()


@store_test
async def test_result_that_does_not_arrive_is_unknown(store: SharedStore) -> None:
    session = await store.open_session(1, NEVER_MS)
    store.links.block(STORE, 1)
    call = asyncio.create_task(session.create("/made"))
    await until(lambda: asyncio.run_coroutine_threadsafe(store.tree.exists("/made"), store.loop).result() is not None)
    await asyncio.to_thread(store.expire, 1)
    store.links.heal()
    # The result was sent before the news of the expiry.
    assert await call == "/made"

    await until(lambda: session.session_id and session._connection is not None)
    store.links.block(STORE, 1)
    call = asyncio.create_task(session.create("/made-2"))
    await until(lambda: asyncio.run_coroutine_threadsafe(store.tree.exists("/made-2"), store.loop).result())
    session.abandon()
    with pytest.raises(ConnectionLoss):
        await call


@store_test
async def test_abandoned_session_expires_after_its_timeout(store: SharedStore) -> None:
    session = await store.open_session(1, SOON_MS)
    await session.create("/mine", ephemeral=True)
    session.abandon()
    await session.close()
    other = await store.open_session(1, NEVER_MS)
    with pytest.raises(NodeExists):
        await other.create("/mine", ephemeral=True)
    await deleted(store, "/mine")
    await other.create("/mine", ephemeral=True)
    await other.close()


@store_test
async def test_session_is_opened_after_a_partition(store: SharedStore) -> None:
    store.links.block(1, STORE)
    opening = asyncio.create_task(store.open_session(1, NEVER_MS))
    assert not (await asyncio.wait((opening,), timeout=0.05))[0]
    store.links.heal()
    session = await opening
    store.links.block(1, STORE)
    await session.close()  # returns; the session would expire later
    store.links.heal()


@store_test
async def test_live_session_does_not_expire(store: SharedStore) -> None:
    session = await store.open_session(1, SOON_MS)
    silent = await store.open_session(2, SOON_MS)
    await session.create("/live", ephemeral=True)
    await silent.create("/silent", ephemeral=True)
    silent.abandon()
    await deleted(store, "/silent")
    assert await session.exists("/live") is not None
    await session.close()
