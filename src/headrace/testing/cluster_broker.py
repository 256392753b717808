"""A broker of an embedded cluster: an `EmbeddedBroker` with a session on the shared store and links to the others."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.environment import BrokerEnvironment
from headrace.cluster.store import CoordinationStore
from headrace.common.clock import Clock
from headrace.storage.files import FileSystem
from headrace.testing.embedded import EmbeddedBroker
from headrace.testing.links import LinkDialer, LinkNode
from headrace.testing.security import BrokerSecurity
from headrace.testing.shared_store import SharedStore, SharedStoreSession

_TIMEOUT_SECONDS = 10.0


class ClusterBroker(EmbeddedBroker):
    """One broker of an `EmbeddedCluster`."""

    def __init__(
        self,
        broker_id: int,
        store: SharedStore,
        session_timeout_ms: int,
        node_at: Callable[[int], LinkNode | None],
        properties: Mapping[str, object],
        data_dir: Path | None = None,
        security: BrokerSecurity | None = None,
    ):
        super().__init__({**properties, "broker.id": broker_id}, data_dir=data_dir)
        self._security = security
        self.id = broker_id
        self.ports: frozenset[int] = frozenset()
        """The ports of all its listeners, as far as they are known."""
        self._store = store
        self._session_timeout_ms = session_timeout_ms
        self._node_at = node_at
        self._session: SharedStoreSession | None = None
        self._dialer: LinkDialer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Starts the broker. After a `kill`, first waits until its old session has expired."""
        if not self.is_running:
            self._store.wait_for_end_of_sessions(self.id)
        super().start()
        endpoints = self._running().broker.server.endpoints
        self.ports = frozenset(endpoint.port for endpoint in endpoints)

    def _create_users(self, security: BrokerSecurity) -> None:
        """Does nothing: the cluster has created them."""

    def _properties(self, port: int) -> dict[str, object]:
        self.ports = frozenset({port})  # other brokers connect before `start` returns
        return super()._properties(port)

    @property
    def is_paused(self) -> bool:
        return self._resumed is not None

    @property
    def is_responsive(self) -> bool:
        return self.is_running and not self.is_paused

    # ---- the environment of the broker, on its event loop

    def _open_environment(self) -> BrokerEnvironment:
        links = self._store.links
        self._dialer = LinkDialer(self.id, links, self._node_at)
        self._loop = asyncio.get_running_loop()
        links.add_listener(self._links_changed)
        return replace(super()._open_environment(), open_store=self._open_store, dialer=self._dialer)

    async def _open_store(self, config: BrokerConfig, clock: Clock, files: FileSystem) -> CoordinationStore:  # noqa: ARG002
        self._session = await self._store.open_session(self.id, self._session_timeout_ms)
        return self._session

    def _close_environment(self) -> None:
        self._store.links.remove_listener(self._links_changed)
        if self._dialer is not None:
            self._dialer.close()
        self._loop = self._dialer = self._session = None

    def _links_changed(self) -> None:
        """Called on the test's thread. Returns when the broker's connections have changed, unless it is paused."""
        loop, dialer = self._loop, self._dialer
        if loop is None or dialer is None:
            return
        applied: Future[None] = Future()

        def apply() -> None:
            dialer.links_changed()
            applied.set_result(None)

        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(apply)
            if not self.is_paused:
                wait([applied], _TIMEOUT_SECONDS)

    def _end(self, clean: bool) -> None:
        thread, session = self._thread, self._session
        if not clean and thread is not None and session is not None:
            # Before `resume`: a paused broker that is killed does not reach the store again.
            thread.loop.call_soon_threadsafe(session.abandon)
        super()._end(clean)
