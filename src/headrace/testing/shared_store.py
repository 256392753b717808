"""The coordination store of an embedded cluster: a tree on its own thread, with sessions for brokers on other threads.

    store = SharedStore()
    session = await store.open_session(node=1, timeout_ms=2000)   # on the broker's loop

- The tree is an `EmbeddedStore`, which the store's loop owns. A session's calls run there; results and watches return
  to the loop that opened the session, in the order in which they happened.
- A session sends heartbeats from its loop. If the store receives nothing from it for the session timeout, because its
  loop is blocked or `links` is, the session expires: its ephemeral nodes are deleted. The session learns of that when
  the store can reach it again, calls its listeners with LOST, opens a new session, and calls them with ESTABLISHED.
- The store counts the time in checks, so a pause of the whole process, in which no heartbeat could arrive, is not
  counted.
- Calls wait while the link is blocked. If the session expires meanwhile, they fail: with SessionExpired if the store
  has not received the call, with ConnectionLoss if it has and the result is unknown.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import (
    ANY_VERSION,
    ConnectionLoss,
    Operation,
    OperationResult,
    SessionExpired,
    SessionListener,
    SessionState,
    Stat,
    Watch,
    WatchEvent,
)
from headrace.common.clock import Clock, SystemClock
from headrace.testing.links import STORE, LinkNode, Links

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_TIMEOUT_SECONDS = 60.0
_HEARTBEATS_PER_TIMEOUT = 4
_CHECKS_PER_TIMEOUT = 10
_POLL_SECONDS = 0.005


class SharedStore:
    """The store: its thread, its tree and its sessions. All methods may be called from any thread."""

    def __init__(self, path: Path | None = None, clock: Clock | None = None, links: Links | None = None):
        """Without a path the tree is in memory only."""
        self.links = links or Links()
        self.loop = asyncio.new_event_loop()
        self._connections: list[_Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._expiry: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-store", daemon=True)
        self._thread.start()

        async def open_tree() -> EmbeddedStore:
            return EmbeddedStore(path, clock or SystemClock())

        try:
            self._tree = self.run(open_tree())
        except BaseException:
            self._end_thread()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the store's loop and returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_TIMEOUT_SECONDS)

    @property
    def tree(self) -> EmbeddedStore:
        """A session that never expires, for calls on the store's loop (`run`)."""
        return self._tree

    async def open_session(self, node: LinkNode, timeout_ms: float) -> "SharedStoreSession":
        """Opens a session for a node, on the loop of the caller."""
        session = SharedStoreSession(self, node, timeout_ms)
        await session.connect()
        return session

    def expire(self, node: LinkNode) -> None:
        """Expires the sessions of a node now."""
        self.run(self._expire([connection for connection in self._connections if connection.node == node]))

    def has_session(self, node: LinkNode, session_id: int) -> bool:
        """Returns True if this is an open session of the node. Runs on the store's loop."""
        return any(
            connection.node == node and connection.session.session_id == session_id for connection in self._connections
        )

    def wait_for_end_of_sessions(self, node: LinkNode) -> None:
        """Waits until a node has no session: its last one was closed or has expired."""

        async def wait() -> None:
            while any(connection.node == node for connection in self._connections):
                await asyncio.sleep(_POLL_SECONDS)

        self.run(wait())

    def close(self) -> None:
        """Closes the tree and ends the thread. Open sessions are lost without a notice."""
        if self.loop.is_closed():
            return
        self.run(self._close())
        self._end_thread()

    async def _close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        for connection in self._connections:
            await connection.session.close()
        self._connections.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._tree.close()

    def _end_thread(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    # ---- sessions, on the store's loop

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def connected(self, connection: "_Connection", done: Callable[[], None]) -> None:
        """Opens the session of a new connection."""
        connection.session = self._tree.new_session()
        self._connections.append(connection)
        if self._expiry is None:
            self._schedule_check()
        connection.to_client.post(done)

    async def disconnected(self, connection: "_Connection") -> None:
        """Closes the session of a connection."""
        if connection in self._connections:
            self._connections.remove(connection)
            await connection.session.close()

    def _schedule_check(self) -> None:
        if not self._connections:
            self._expiry = None
            return
        interval = min(connection.timeout_seconds for connection in self._connections) / _CHECKS_PER_TIMEOUT
        self._expiry = self.loop.call_later(interval, self._check_sessions, interval)

    def _check_sessions(self, interval: float) -> None:
        for connection in self._connections:
            connection.silent_seconds += interval
        silent = [
            connection for connection in self._connections if connection.silent_seconds > connection.timeout_seconds
        ]
        for connection in silent:
            _logger.info(
                "Store session %#x of broker %s expires: no heartbeat for %.0f ms",
                connection.session.session_id,
                connection.node,
                connection.silent_seconds * 1000,
            )
        if silent:
            task = self.spawn(self._expire(silent))
            task.add_done_callback(lambda _: self._schedule_check())
        else:
            self._schedule_check()

    async def _expire(self, connections: "Sequence[_Connection]") -> None:
        for connection in connections:
            await self.disconnected(connection)
            connection.to_client.post(connection.lost)


class _Connection:
    """One session, from its opening to its end: the two directions between its loop and the store's loop."""

    session: EmbeddedStore

    def __init__(self, store: SharedStore, node: LinkNode, timeout_ms: float, lost: "Callable[[_Connection], None]"):
        links = store.links
        self.node = node
        self.timeout_seconds = timeout_ms / 1000
        self.silent_seconds = 0.0
        """The time since the last message of the session."""
        self.to_store = _Direction(store.loop, lambda: not links.is_blocked(node, STORE))
        self.to_client = _Direction(asyncio.get_running_loop(), lambda: not links.is_blocked(STORE, node))
        self._store = store
        self._lost = lost

    def lost(self) -> None:
        self._lost(self)

    def release(self) -> None:
        self.to_store.release()
        self.to_client.release()

    @property
    def is_open(self) -> bool:
        return not self._store.loop.is_closed() and self.to_store.is_open() and self.to_client.is_open()


class _Direction:
    """Calls functions on a loop, in order. Holds them back while the link is blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop, is_open: Callable[[], bool]):
        self.is_open = is_open
        self._loop = loop
        self._held: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._guard = threading.Lock()

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        with self._guard:
            self._held.append((function, arguments))
        self.release()

    def release(self) -> None:
        with self._guard, suppress(RuntimeError):  # the loop is closed: its node was killed
            while self._held and self.is_open():
                function, arguments = self._held.popleft()
                self._loop.call_soon_threadsafe(function, *arguments)


@dataclass(frozen=True)
class _RemoteWatch:
    """A watch on the store's loop that calls the client's watch on the client's loop."""

    session: "SharedStoreSession"
    connection: _Connection
    watch: Watch

    def __call__(self, event: WatchEvent) -> None:
        self.connection.to_client.post(self.session._call_watch, self.connection, self.watch, event)


class _Call:
    """A call that has no result yet."""

    def __init__(self, future: "asyncio.Future[Any]"):
        self.future = future
        self.was_received = False


class SharedStoreSession:
    """A session on a shared store. Implements `store.CoordinationStore` on the loop that opened it."""

    def __init__(self, store: SharedStore, node: LinkNode, timeout_ms: float):
        self._store = store
        self.node = node
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._listeners: list[SessionListener] = []
        self._calls: dict[_Call, None] = {}
        self._connection: _Connection | None = None
        self._session_id = 0
        self._heartbeat: asyncio.TimerHandle | None = None
        self._reconnect: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Opens a session. Waits while the link to the store is blocked."""
        connection = _Connection(self._store, self.node, self._timeout_ms, self._lost)
        opened = self._loop.create_future()
        self._store.links.add_listener(connection.release)
        try:
            connection.to_store.post(self._store.connected, connection, lambda: _complete(opened, None))
            await opened
        except BaseException:
            self._store.links.remove_listener(connection.release)
            raise
        self._connection = connection
        self._session_id = connection.session.session_id
        self._beat()

    @property
    def session_id(self) -> int:
        return self._session_id

    # ---- calls

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return await self._call(lambda tree: tree.create(path, data, ephemeral=ephemeral, sequential=sequential))

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        remote = self._remote(watch)
        return await self._call(lambda tree: tree.get(path, remote))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        remote = self._remote(watch)
        return await self._call(lambda tree: tree.exists(path, remote))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        remote = self._remote(watch)
        return await self._call(lambda tree: tree.children(path, remote))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._call(lambda tree: tree.set(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call(lambda tree: tree.delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        operations = list(operations)
        return await self._call(lambda tree: tree.multi(operations))

    def _remote(self, watch: Watch | None) -> Watch | None:
        if watch is None or self._connection is None:
            return None
        return _RemoteWatch(self, self._connection, watch)

    async def _call(self, operation: Callable[[EmbeddedStore], Awaitable[T]]) -> T:
        connection = self._connection
        if connection is None:
            raise SessionExpired(f"Session {self._session_id:#x} has expired or was closed")
        call = _Call(self._loop.create_future())
        self._calls[call] = None
        connection.to_store.post(self._receive, connection, call, operation)
        try:
            result: T = await call.future
            return result
        finally:
            self._calls.pop(call, None)

    def _receive(
        self, connection: _Connection, call: _Call, operation: Callable[[EmbeddedStore], Awaitable[Any]]
    ) -> None:
        """Executes a call, on the store's loop."""
        call.was_received = True
        connection.silent_seconds = 0.0

        async def execute() -> None:
            result, error = None, None
            try:
                result = await operation(connection.session)
            except Exception as raised:  # noqa: BLE001 - raised in the caller
                error = raised
            connection.to_client.post(_complete, call.future, result, error)

        self._store.spawn(execute())

    def _call_watch(self, connection: _Connection, watch: Watch, event: WatchEvent) -> None:
        if connection is self._connection:
            watch(event)

    # ---- session

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def _notify_listeners(self, state: SessionState) -> None:
        for listener in tuple(self._listeners):
            listener(state)

    def _beat(self) -> None:
        """Sends a heartbeat, and schedules the next one."""
        connection = self._connection
        if connection is not None:
            connection.to_store.post(self._heard, connection)
            interval = connection.timeout_seconds / _HEARTBEATS_PER_TIMEOUT
            self._heartbeat = self._loop.call_later(interval, self._beat)

    def _heard(self, connection: _Connection) -> None:
        connection.silent_seconds = 0.0

    def _lost(self, connection: _Connection) -> None:
        """Called when the store reports that the session has expired."""
        if connection is not self._connection:
            return
        _logger.info("Broker %s: store session %#x has expired, opening a new session", self.node, self._session_id)
        self._disconnect()
        self._notify_listeners(SessionState.LOST)
        self._reconnect = self._loop.create_task(self._connect_again())

    async def _connect_again(self) -> None:
        await self.connect()
        self._notify_listeners(SessionState.ESTABLISHED)

    def _disconnect(self) -> None:
        """Ends the heartbeats and fails all calls without a result."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._store.links.remove_listener(connection.release)
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        calls, self._calls = self._calls, {}
        for call in calls:
            if call.was_received:
                error: Exception = ConnectionLoss(f"Session {self._session_id:#x} ended before the store responded")
            else:
                error = SessionExpired(f"Session {self._session_id:#x} has expired or was closed")
            _complete(call.future, None, error)

    def _post_close(self, connection: _Connection) -> "asyncio.Future[None]":
        closed: asyncio.Future[None] = self._loop.create_future()

        def close() -> None:
            task = self._store.spawn(self._store.disconnected(connection))
            task.add_done_callback(lambda _: connection.to_client.post(_complete, closed, None))

        connection.to_store.post(close)
        return closed

    async def close(self) -> None:
        """Closes the session. If the link is blocked, the session expires later."""
        if self._reconnect is not None:
            self._reconnect.cancel()
            await asyncio.gather(self._reconnect, return_exceptions=True)
        connection = self._connection
        self._disconnect()
        if connection is not None and connection.is_open:
            await asyncio.wait((self._post_close(connection),), timeout=connection.timeout_seconds)

    def abandon(self) -> None:
        """Ends without a message to the store, as in a crash: the session expires after its timeout."""
        if self._reconnect is not None:
            self._reconnect.cancel()
        self._disconnect()


def _complete(future: "asyncio.Future[Any]", result: Any, error: Exception | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
