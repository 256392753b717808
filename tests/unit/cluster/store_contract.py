"""The implementations that must pass the contract tests. Add a new one to IMPLEMENTATIONS."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.remote.client import RemoteStore
from headrace.cluster.remote.server import StoreServer
from headrace.cluster.store import CoordinationStore
from headrace.testing.clock import ManualClock
from headrace.testing.shared_store import SharedStore, SharedStoreSession


class EmbeddedHarness:
    """Sessions on one embedded store."""

    def __init__(self, path: Path | None):
        self.clock = ManualClock()
        self._first: EmbeddedStore | None = None
        self._path = path

    async def session(self) -> CoordinationStore:
        if self._first is None:
            self._first = EmbeddedStore(self._path, self.clock)
            return self._first
        return self._first.new_session()

    async def expire(self, store: CoordinationStore) -> None:
        assert isinstance(store, EmbeddedStore)
        await store.expire_session()

    async def close(self) -> None:
        """Does nothing: the last session closes the store."""


class SharedHarness:
    """Sessions on one store on another thread."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._store = SharedStore(clock=self.clock)
        self._nodes = itertools.count(1)

    async def session(self) -> CoordinationStore:
        return await self._store.open_session(next(self._nodes), timeout_ms=60_000)

    async def expire(self, store: CoordinationStore) -> None:
        assert isinstance(store, SharedStoreSession)
        await asyncio.to_thread(self._store.expire, store.node)

    async def close(self) -> None:
        self._store.close()


class RemoteHarness:
    """Sessions on one store that is served over a socket."""

    def __init__(self, directory: Path):
        self.clock = ManualClock()
        self._store = EmbeddedStore(directory / "coordination.db", self.clock)
        self._server = StoreServer(self._store, directory / "s")
        self._is_started = False
        self._clients: dict[int, str] = {}

    async def session(self) -> CoordinationStore:
        if not self._is_started:
            self._is_started = True
            await self._server.start()
        client = f"client {len(self._clients)}"
        session = await RemoteStore.open(self._server.path, client, session_timeout_ms=60_000)
        self._clients[id(session)] = client
        return session

    async def expire(self, store: CoordinationStore) -> None:
        await self._server.end_sessions(self._clients[id(store)])

    async def close(self) -> None:
        await self._server.close()
        await self._store.close()


Harness = EmbeddedHarness | SharedHarness | RemoteHarness


async def embedded_file(directory: Path) -> Harness:
    return EmbeddedHarness(directory / "coordination.db")


async def embedded_memory(directory: Path) -> Harness:
    return EmbeddedHarness(None)


async def shared(directory: Path) -> Harness:
    return SharedHarness()


async def remote(directory: Path) -> Harness:
    return RemoteHarness(directory)


IMPLEMENTATIONS: list[Callable[[Path], Awaitable[Harness]]] = [embedded_file, embedded_memory, shared, remote]
