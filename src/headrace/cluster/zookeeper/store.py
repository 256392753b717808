"""The coordination store of a cluster: ZooKeeper.

    store = await ZooKeeperStore.open(config)

- Up to `zookeeper.max.in.flight.requests` requests are sent without waiting for each other. More requests wait for
  their turn, in the order of the calls. Nodes that are read without watches in the same turn of the event loop are
  read with one request (`multi_read`), if the server is ZooKeeper 3.6 or newer.
- A lost connection is not a lost session. Calls wait until the connection is back. Reads are sent again. Writes whose
  response was lost are looked up first (`lost_writes`) and sent again if they were not executed.
- After a lost connection all watches are called, since changes may have been missed. Users read again.
- When the session has expired, all its calls fail with SessionExpired, its watches are dropped, and the session
  listeners get LOST. Then a new session is opened, and they get ESTABLISHED. Calls in between wait for the new
  session.
- The state belongs to the event loop. `session` keeps kazoo's thread out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from kazoo import exceptions
from kazoo.protocol import serialization
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from headrace.cluster import store as errors
from headrace.cluster.store import (
    ANY_VERSION,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    NodeExists,
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
    check_path,
    parent_of,
)
from headrace.cluster.zookeeper.config import ZooKeeperConfig
from headrace.cluster.zookeeper.lost_writes import Node, find_results
from headrace.cluster.zookeeper.multi_read import MultiRead
from headrace.cluster.zookeeper.session import RequestLost, Session, Watcher

_logger = logging.getLogger(__name__)

_ERRORS: dict[type[Exception], tuple[type[StoreError], str]] = {
    exceptions.NoNodeError: (NoNode, "Node {} does not exist"),
    exceptions.NodeExistsError: (NodeExists, "Node {} already exists"),
    exceptions.BadVersionError: (errors.BadVersion, "Node {} has another version"),
    exceptions.NotEmptyError: (errors.NotEmpty, "Node {} has children"),
    exceptions.NoChildrenForEphemeralsError: (
        errors.NoChildrenForEphemerals,
        "The parent of node {} is ephemeral and cannot have children",
    ),
    exceptions.NoAuthError: (StoreError, "ZooKeeper's ACL of node {} does not allow it"),
}
_FLAG_EPHEMERAL, _FLAG_SEQUENTIAL = 1, 2
_SENSITIVE = ("/config/users", "/delegation_token/tokens")
"""Nodes with credentials: with `zookeeper.set.acl`, only their creator may read them."""
_OPEN = "/consumers"
"""As in Kafka, everybody may write here: very old consumers keep their offsets below this node."""
_NEW_SESSION_DELAY_SECONDS = 1.0
_MAX_NODES_PER_READ = 500

_Result = TypeVar("_Result")


class ZooKeeperStore:
    """A session with ZooKeeper that is replaced when it expires. Implements `store.CoordinationStore`."""

    def __init__(self, config: ZooKeeperConfig):
        """Use `open`."""
        self.config = config
        self._tls = config.tls.context() if config.tls is not None else None
        self._slots = asyncio.Semaphore(config.max_in_flight)
        self._listeners: list[SessionListener] = []
        self._session = Session(config, self._tls, self._session_lost)
        self._has_session = asyncio.Event()
        """Cleared between two sessions."""
        self._is_closed = False
        self._reopening: asyncio.Task[None] | None = None
        self._reads: list[tuple[str, asyncio.Future[Any]]] = []
        """The nodes to read with one request at the end of this turn of the event loop."""
        self._multi_reads: set[asyncio.Task[None]] = set()
        self._has_multi_read = True
        """False if the server is too old."""

    @classmethod
    async def open(cls, config: ZooKeeperConfig) -> "ZooKeeperStore":
        """Connects and creates the chroot. Raises ConnectionLoss if ZooKeeper cannot be reached within
        `zookeeper.connection.timeout.ms`."""
        store = cls(config)
        try:
            store._session.start()
            try:
                async with asyncio.timeout(config.connection_timeout_ms / 1000):
                    await store._session.wait_connected()
                    store._has_session.set()
                    await store._create_chroot()
            except TimeoutError:
                raise ConnectionLoss(
                    f"Cannot connect to ZooKeeper at {','.join(config.servers)} within {config.connection_timeout_ms} "
                    "ms (zookeeper.connection.timeout.ms)"
                ) from None
            except SessionExpired:
                raise ConnectionLoss(f"ZooKeeper at {','.join(config.servers)} refused a session") from None
        except BaseException:
            await store.close()
            raise
        _logger.info(
            "Connected to ZooKeeper %s, session %s with a timeout of %d ms",
            config.connect,
            store._session.name,
            config.session_timeout_ms,
        )
        return store

    async def _create_chroot(self) -> None:
        parts = self.config.chroot.split("/")[1:]
        session = self._session
        for count in range(1, len(parts) + 1):
            path = "/" + "/".join(parts[:count])
            # An existing node may belong to somebody else, who does not allow to create it.
            if await self._retry(session, partial(session.call, serialization.Exists(path, None))) is not None:
                continue
            request = serialization.Create(path, None, self._acl(""), 0)
            try:
                await self._retry(session, partial(session.call, request))
            except exceptions.NodeExistsError:
                continue
            except exceptions.ZookeeperError as error:
                _raise(error, path)

    @property
    def session_id(self) -> int:
        return self._session.id

    @property
    def is_connected(self) -> bool:
        return self._session.is_connected

    @property
    def session_credentials(self) -> tuple[int, bytes]:
        """Id and password of the session, as kazoo's `client_id`."""
        return self._session.id, self._session.password

    # ---- reading

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        found = None
        if watch is None and self._has_multi_read:
            check_path(path)
            found = await self._read_with_others(path)
        if found is None:
            found = await self._read(serialization.GetData, path, watch)
        elif isinstance(found, Exception):
            _raise(found, path)
        data, stat = found
        return data or b"", _stat(stat)

    async def _read_with_others(self, path: str) -> Any:
        """Returns data and stat of a node, or kazoo's error; None if the node has to be read alone."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Any] = loop.create_future()
        if not self._reads:
            loop.call_soon(self._send_reads)
        self._reads.append((path, found))
        return await found

    def _send_reads(self) -> None:
        reads, self._reads = self._reads, []
        for first in range(0, len(reads), _MAX_NODES_PER_READ):
            task = asyncio.create_task(self._multi_read(reads[first : first + _MAX_NODES_PER_READ]))
            self._multi_reads.add(task)
            task.add_done_callback(self._multi_reads.discard)

    async def _multi_read(self, reads: Sequence[tuple[str, "asyncio.Future[Any]"]]) -> None:
        results: Sequence[Any] = [None] * len(reads)
        try:
            if len(reads) > 1:
                request = MultiRead([self._full(path) for path, _ in reads])
                async with self._slots:
                    session = await self._current_session()
                    results = await self._retry(session, lambda: session.call(request))
        except exceptions.UnimplementedError:
            self._has_multi_read = False
        except (exceptions.ZookeeperError, SessionExpired) as error:
            # Each of the readers finds out by itself, and gets an error of its own.
            _logger.debug("Reading %d nodes with one request failed: %r", len(reads), error)
        finally:
            for (_, found), result in zip(reads, results, strict=True):
                if not found.done():
                    found.set_result(result)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._read(serialization.Exists, path, watch)
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._read(serialization.GetChildren, path, watch, of_children=True)
        return sorted(names)

    async def _read(
        self,
        request_type: Callable[[str, Watcher | None], Any],
        path: str,
        watch: Watch | None,
        of_children: bool = False,
    ) -> Any:
        check_path(path)
        async with self._slots:
            session = await self._current_session()
            watcher = None if watch is None else Watcher(session, path, of_children, watch)
            request = request_type(self._full(path), watcher)
            try:
                return await self._retry(session, lambda: session.call(request))
            except exceptions.ZookeeperError as error:
                _raise(error, path)

    # ---- writing

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        operation = Create(path, data, ephemeral, sequential)
        (created_path,) = await self._write([operation], self._request(operation))
        assert isinstance(created_path, str)
        return created_path

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        operation = Set(path, data, version)
        (stat,) = await self._write([operation], self._request(operation))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        operation = Delete(path, version)
        await self._write([operation], self._request(operation))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        if not operations:
            return []
        request = serialization.Transaction([self._request(operation) for operation in operations])
        return await self._write(list(operations), request)

    def _request(self, operation: Operation) -> Any:
        check_path(operation.path)
        path = self._full(operation.path)
        if isinstance(operation, Create):
            flags = _FLAG_EPHEMERAL * operation.ephemeral | _FLAG_SEQUENTIAL * operation.sequential
            # Apache Kafka reads a node with empty data as damaged JSON, one without data as empty.
            return serialization.Create(path, operation.data or None, self._acl(operation.path), flags)
        if isinstance(operation, Set):
            return serialization.SetData(path, operation.data, operation.version)
        if isinstance(operation, Delete):
            return serialization.Delete(path, operation.version)
        assert isinstance(operation, Check)
        return serialization.CheckVersion(path, operation.version)

    async def _write(self, operations: list[Operation], request: Any) -> list[OperationResult]:
        async with self._slots:
            session = await self._current_session()
            before = session.last_zxid
            while True:
                await session.wait_connected()
                try:
                    response = await session.call(request)
                    break
                except RequestLost:
                    results = await self._retry(session, lambda: self._find_results(session, operations, before))
                    if results is not None:
                        return results
                except exceptions.ZookeeperError as error:
                    _raise(error, operations[0].path)
        if not isinstance(request, serialization.Transaction):
            return [self._result(response)]
        for index, part in enumerate(response):
            # The operations before and after the failed one have errors without a meaning.
            if isinstance(part, Exception) and not isinstance(
                part, exceptions.RolledBackError | exceptions.RuntimeInconsistency
            ):
                _raise(part, operations[index].path, index)
        return [self._result(part) for part in response]

    def _result(self, response: Any) -> OperationResult:
        if isinstance(response, str):
            return response.removeprefix(self.config.chroot)
        return _stat(response) if isinstance(response, serialization.ZnodeStat) else None

    async def _find_results(
        self, session: Session, operations: list[Operation], before: int
    ) -> list[OperationResult] | None:
        async def get(path: str) -> Node:
            try:
                data, stat = await session.call(serialization.GetData(self._full(path), None))
            except exceptions.NoNodeError:
                return None
            return data or b"", _stat(stat)

        async def children(path: str) -> list[str]:
            try:
                names: list[str] = await session.call(serialization.GetChildren(self._full(path), None))
            except exceptions.NoNodeError:
                return []
            return names

        await session.call(serialization.Sync(self._full(parent_of(operations[0].path))))
        return await find_results(operations, before, session.id, get, children)

    # ---- requests

    async def _retry(self, session: Session, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """Repeats calls without effect until the connection lasts as long as they take."""
        while True:
            await session.wait_connected()
            try:
                return await call()
            except RequestLost:
                continue

    async def _current_session(self) -> Session:
        if self._is_closed:
            raise SessionExpired("The connection to ZooKeeper was closed")
        await self._has_session.wait()
        if self._is_closed:
            raise SessionExpired("The connection to ZooKeeper was closed")
        return self._session

    def _full(self, path: str) -> str:
        return (self.config.chroot + path).rstrip("/") or "/"

    def _acl(self, path: str) -> list[Any]:
        if not self.config.set_acl or path == _OPEN:
            return list(OPEN_ACL_UNSAFE)
        is_sensitive = any(path == node or path.startswith(f"{node}/") for node in _SENSITIVE)
        return [*CREATOR_ALL_ACL] if is_sensitive else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    # ---- session

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def _session_lost(self, session: Session) -> None:
        if session is not self._session or self._is_closed or not self._has_session.is_set():
            return
        self._has_session.clear()
        _logger.warning(
            "ZooKeeper session %s has expired: the registration of this broker and other ephemeral nodes are deleted. "
            "Opening a new session",
            session.name,
        )
        self._notify_listeners(SessionState.LOST)
        self._reopening = asyncio.create_task(self._open_new_session())

    async def _open_new_session(self) -> None:
        while not self._is_closed:
            session = self._session = Session(self.config, self._tls, self._session_lost)
            session.start()
            try:
                await session.wait_connected()
            except SessionExpired:
                await asyncio.sleep(_NEW_SESSION_DELAY_SECONDS)
                continue
            _logger.info("Opened ZooKeeper session %s", session.name)
            self._has_session.set()
            self._notify_listeners(SessionState.ESTABLISHED)
            return

    def _notify_listeners(self, state: SessionState) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(state)
            except Exception:
                _logger.exception("Session listener failed at %s", state.name)

    async def close(self) -> None:
        """Ends the session. Waits for ZooKeeper's response, unless it cannot be reached."""
        if self._is_closed:
            return
        self._is_closed = True
        self._has_session.set()
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)
        await self._session.close()


def _stat(stat: Any) -> Stat:
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        version=stat.version,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        ephemeral_owner=stat.ephemeralOwner,
        num_children=stat.numChildren,
    )


def _raise(error: Exception, path: str, index: int = 0) -> NoReturn:
    error_type, message = _ERRORS.get(
        type(error), (StoreError, f"ZooKeeper refused a request for node {{}}: {error!r}")
    )
    raise error_type(message.format(path), path, index) from None
