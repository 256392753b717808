"""The coordination store as a node of the simulation: `EmbeddedStore` sessions behind the virtual network.

Each broker has a `StoreClient`, which behaves as a ZooKeeper client does:

- A session lives on when its connection breaks. It expires if the store hears nothing from the client for the session
  timeout. The client learns of it at its next contact, and then opens a new session.
- Requests wait while there is no connection. If the connection breaks before the response, reads are sent again, and
  the outcome of writes is looked up, as `ZooKeeperStore` does (`cluster.zookeeper.lost_writes`).
- Watches survive a lost connection. After a new connection they may fire although nothing has changed.

`StoreServer.break_before` and `break_after` break a client's connection at its next write, without and with its effect.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import (
    ANY_VERSION,
    ConnectionLoss,
    Create,
    Delete,
    EventKind,
    NoNode,
    Operation,
    OperationResult,
    SessionExpired,
    SessionListener,
    SessionState,
    Set,
    Stat,
    StoreError,
    Watch,
    WatchEvent,
)
from headrace.cluster.zookeeper.lost_writes import find_results
from headrace.testing.simulation.loop import Node, NodeClock, VirtualLoop
from headrace.testing.simulation.network import Network, Pipe

STORE = "store"
"""The name of the store's node."""
SESSION_SECONDS = 6.0
_CHECK_SECONDS = 0.5


@dataclass(eq=False)
class _Session:
    """A session on the store's side."""

    store: EmbeddedStore
    owner: str
    last_contact: float
    connection: "StoreConnection | None" = None
    events: "deque[tuple[int, WatchEvent]]" = field(default_factory=deque)
    """The events that the client may not have received: a new connection sends them again."""
    received: int = 0
    """The number of events that the client has received."""

    def forget_received(self, received: int) -> None:
        while self.received < received:
            self.events.popleft()
            self.received += 1


class StoreConnection:
    """A connection of a client: two pipes."""

    def __init__(self, network: Network, client: "StoreClient", server: "StoreServer"):
        self.client_node = client.node
        self.on_broken = lambda: client.node.call(client.broken, self)
        self.session: _Session | None = None
        self.to_server = Pipe(network, client.node, server.node, lambda item: server.received(self, item))
        self.to_client = Pipe(network, server.node, client.node, lambda item: client.received(self, item))
        self.closed = False
        self.requests: deque[tuple[Any, ...]] = deque()
        self.is_answering = False

    def close(self) -> None:
        """Breaks the connection. Nothing arrives any more; the sides find out when they are told, or by silence."""
        self.closed = True
        self.to_server.close()
        self.to_client.close()


class StoreServer:
    """The store's side. All changes go through one tree."""

    def __init__(self, loop: VirtualLoop, network: Network):
        self.node = Node(loop, STORE)
        self.store = EmbeddedStore(None, NodeClock(loop, self.node))
        """A session of the simulation itself, for checks."""
        self.session_seconds = SESSION_SECONDS
        self.break_before: dict[str, None] = {}
        """The clients whose connection breaks at their next write, without its effect."""
        self.break_after: dict[str, None] = {}
        """The clients whose connection breaks after their next write took effect."""
        self.expired = 0
        self._loop = loop
        self.network = network
        self._sessions: dict[int, _Session] = {}
        self.node.run(self._expire_sessions())

    def client(self, node: Node) -> "StoreClient":
        return StoreClient(self._loop, self.network, node, self)

    async def _expire_sessions(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            for session_id, session in list(self._sessions.items()):
                if self._loop.time() - session.last_contact > self.session_seconds:
                    del self._sessions[session_id]
                    self.expired += 1
                    if session.connection is not None:
                        self._break(session.connection)
                    await session.store.close()

    def expire(self, session_id: int) -> None:
        """Lets a session expire at the next check."""
        if session_id in self._sessions:
            self._sessions[session_id].last_contact = -self.session_seconds

    def owner_of(self, session_id: int) -> str:
        """Returns the node that a session belongs to."""
        session = self._sessions.get(session_id)
        return session.owner if session is not None else "simulation"

    # ---- called by the pipes, on the store's node

    def received(self, connection: StoreConnection, item: tuple[Any, ...]) -> None:
        kind, *arguments = item
        if connection.session is not None:
            connection.session.last_contact = self._loop.time()
        if kind == "connect":
            self._connect(connection, *arguments)
        elif kind == "ping":
            if connection.session is not None:
                connection.session.forget_received(*arguments)
            connection.to_client.send(("pong",))
        elif kind == "close":
            self.node.run(self._close(connection))
        else:
            connection.requests.append(tuple(arguments))
            if not connection.is_answering:
                connection.is_answering = True
                self.node.run(self._answer_all(connection))

    def _connect(self, connection: StoreConnection, session_id: int | None) -> None:
        if session_id is None:
            store = self.store.new_session()
            session = self._sessions[store.session_id] = _Session(store, connection.client_node.name, self._loop.time())
        else:
            found = self._sessions.get(session_id)
            if found is None:
                connection.to_client.send(("expired",))
                return
            session = found
            session.last_contact = self._loop.time()
            if session.connection is not None:
                session.connection.close()
        session.connection = connection
        connection.session = session
        connection.to_client.send(("connected", session.store.session_id, session.received))
        for watch_id, event in session.events:
            connection.to_client.send(("event", watch_id, event))

    async def _close(self, connection: StoreConnection) -> None:
        session = connection.session
        if session is not None and self._sessions.pop(session.store.session_id, None) is not None:
            await session.store.close()
        connection.to_client.send(("closed",))

    async def _answer_all(self, connection: StoreConnection) -> None:
        """Answers the requests of a connection in order."""
        while connection.requests and not connection.closed:
            await self._answer(connection, *connection.requests.popleft())
        connection.is_answering = False

    async def _answer(
        self, connection: StoreConnection, request_id: int, method: str, arguments: tuple[Any, ...], watch_id: int
    ) -> None:
        session = connection.session
        if session is None:
            return
        client = connection.client_node.name
        is_write = method == "multi"
        if is_write and client in self.break_before:
            del self.break_before[client]
            self._break(connection)
            return
        result: Any
        try:
            if is_write:
                result = await session.store.multi(*arguments)
            elif watch_id:
                result = await getattr(session.store, method)(*arguments, watch=self._watch(session, watch_id))
            else:
                result = await getattr(session.store, method)(*arguments)
        except StoreError as error:
            result = error
        if is_write and client in self.break_after:
            del self.break_after[client]
            self._break(connection)
            return
        connection.to_client.send(("response", request_id, result, session.store._shared.tree._zxid))

    def _break(self, connection: StoreConnection) -> None:
        connection.close()
        self._loop.call_later(
            self.network.latency(STORE, connection.client_node.name), connection.on_broken, context=self.network.context
        )

    def _watch(self, session: _Session, watch_id: int) -> Watch:
        def fire(event: WatchEvent) -> None:
            session.events.append((watch_id, event))
            if session.connection is not None:
                session.connection.to_client.send(("event", watch_id, event))

        return fire


@dataclass(eq=False)
class _Request:
    """A request without a response."""

    method: str
    arguments: tuple[Any, ...]
    watch_id: int
    future: "asyncio.Future[Any]"
    sent: bool = False


class StoreClient:
    """A broker's side. Implements `cluster.store.CoordinationStore`."""

    def __init__(self, loop: VirtualLoop, network: Network, node: Node, server: StoreServer):
        self.node = node
        self._loop = loop
        self._network = network
        self._server = server
        self._session_id = 0
        self._connection: StoreConnection | None = None
        self._is_connected = False
        self._last_heard = 0.0
        self._events_received = 0
        self._last_zxid = 0
        self._requests: dict[int, _Request] = {}
        self._watches: dict[int, tuple[Watch, str]] = {}
        self._next_id = 1
        self._listeners: list[SessionListener] = []
        self._closed = False
        self.lost_writes = 0
        self._opened: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._task = node.run(self._keep_alive(), f"{node.name}-store-client")

    async def opened(self) -> "StoreClient":
        """Waits for the first session."""
        await self._opened
        return self

    @property
    def session_id(self) -> int:
        return self._session_id

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    # ---- connection

    async def _keep_alive(self) -> None:
        interval = self._server.session_seconds / 3
        while not self._closed:
            now = self._loop.time()
            if self._connection is None:
                self._last_heard = now
                self._connect()
            elif now - self._last_heard > 2 * interval:
                self.broken(self._connection)
                continue
            else:
                self._connection.to_server.send(("ping", self._events_received))
            await asyncio.sleep(interval / 2)

    def _connect(self) -> None:
        self._connection = StoreConnection(self._network, self, self._server)
        self._is_connected = False
        self._connection.to_server.send(("connect", self._session_id or None))

    def broken(self, connection: StoreConnection) -> None:
        """The connection is lost: writes in flight fail, reads are sent again."""
        if connection is not self._connection:
            return
        connection.close()
        self._connection = None
        self._is_connected = False
        for request_id, request in list(self._requests.items()):
            if request.sent and request.method == "multi":
                del self._requests[request_id]
                self._fail(request, ConnectionLoss("The connection to the store was lost during a write"))
            request.sent = False
        if not self._closed:
            self._last_heard = self._loop.time()
            self._connect()

    def received(self, connection: StoreConnection, item: tuple[Any, ...]) -> None:
        if connection is not self._connection:
            return
        self._last_heard = self._loop.time()
        kind, *arguments = item
        if kind == "connected":
            self._connected(*arguments)
        elif kind == "expired":
            self._expired()
        elif kind == "event":
            self._event(*arguments)
        elif kind == "response":
            self._response(*arguments)
        elif kind == "closed" and not self._ended.done():
            self._ended.set_result(None)

    def _connected(self, session_id: int, events_received: int) -> None:
        self._is_connected = True
        is_new = session_id != self._session_id
        self._session_id = session_id
        self._events_received = events_received
        if not self._opened.done():
            self._opened.set_result(None)
        elif is_new:
            self._notify(SessionState.ESTABLISHED)
        else:
            self._fire_spuriously()
        for request_id, request in list(self._requests.items()):
            if not request.sent:
                self._send(request_id, request)

    def _expired(self) -> None:
        self._session_id = self._events_received = 0
        self._watches.clear()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            self._fail(request, SessionExpired("The session has expired"))
        assert self._connection is not None
        self._connection.to_server.send(("connect", None))
        self._notify(SessionState.LOST)

    def _notify(self, state: SessionState) -> None:
        for listener in tuple(self._listeners):
            listener(state)

    # ---- watches

    def _event(self, watch_id: int, event: WatchEvent) -> None:
        self._events_received += 1
        found = self._watches.pop(watch_id, None)
        if found is not None:
            found[0](event)

    def _fire_spuriously(self) -> None:
        """Fires some watches without a change, as client libraries do after a lost connection."""
        for watch_id, (watch, path) in list(self._watches.items()):
            if self._loop.random.random() < 0.3:
                del self._watches[watch_id]
                watch(WatchEvent(EventKind.CHANGED, path))

    # ---- requests

    async def _call(self, method: str, *arguments: Any, watch: Watch | None = None) -> Any:
        if self._closed:
            raise SessionExpired("The session was closed")
        watch_id = 0
        request_id, self._next_id = self._next_id, self._next_id + 1
        if watch is not None:
            watch_id = request_id
            self._watches[watch_id] = (watch, arguments[0])
        request = _Request(method, arguments, watch_id, self._loop.create_future())
        self._requests[request_id] = request
        if self._is_connected:
            self._send(request_id, request)
        return await request.future

    def _send(self, request_id: int, request: _Request) -> None:
        request.sent = True
        assert self._connection is not None
        item = ("request", request_id, request.method, request.arguments, request.watch_id)
        self._connection.to_server.send(item)

    def _response(self, request_id: int, result: Any, zxid: int) -> None:
        self._last_zxid = zxid
        request = self._requests.pop(request_id, None)
        if request is None:
            return
        if isinstance(result, StoreError):
            self._watches.pop(request.watch_id, None)
            self._fail(request, result)
        elif not request.future.done():
            request.future.set_result(result)

    def _fail(self, request: _Request, error: StoreError) -> None:
        if not request.future.done():
            request.future.set_exception(error)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return await self._call("get", path, watch=watch)  # type: ignore[no-any-return]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._call("exists", path, watch=watch)  # type: ignore[no-any-return]

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._call("children", path, watch=watch)  # type: ignore[no-any-return]

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        (created_path,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created_path, str)
        return created_path

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self.multi([Set(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        before, session_id = self._last_zxid, self._session_id
        while True:
            try:
                return await self._call("multi", operations)  # type: ignore[no-any-return]
            except ConnectionLoss:
                self.lost_writes += 1
            results = await find_results(operations, before, session_id, self._get_or_none, self._children_or_none)
            if self._session_id != session_id:
                raise SessionExpired("The session has expired during a write")
            if results is not None:
                return results

    async def _get_or_none(self, path: str) -> tuple[bytes, Stat] | None:
        try:
            return await self.get(path)
        except NoNode:
            return None

    async def _children_or_none(self, path: str) -> list[str]:
        try:
            return await self.children(path)
        except NoNode:
            return []

    async def close(self) -> None:
        """Closes the session, if the store can be reached soon. Otherwise it expires."""
        if self._closed:
            return
        self._closed = True
        self._task.cancel()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            self._fail(request, SessionExpired("The session was closed"))
        if self._connection is not None:
            self._connection.to_server.send(("close",))
            await asyncio.wait((self._ended,), timeout=1.0)
            self._connection.close()
