"""One ZooKeeper session on one kazoo client: requests, watches, connection and end of the session.

- kazoo's thread only passes messages to the event loop (`call_soon_threadsafe`), in the order in which it read them.
  All state of this class belongs to the event loop.
- A client never gets a second session: when kazoo learns that the session has expired, its thread stops. So a request
  that was made for one session is never executed in the next.
- While the connection is lost, the session goes on. Requests without a response fail with `RequestLost`: ZooKeeper
  may or may not have executed them.
- kazoo forgets its watches with the connection. They are called when the connection is back, since the nodes may have
  changed meanwhile. They are dropped when the session ends.
"""

import asyncio
import contextlib
import logging
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient, KazooState, KeeperState
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionExpiredError, SessionMovedError
from kazoo.protocol.states import EventType

from headrace.cluster.store import EventKind, SessionExpired, Watch, WatchEvent
from headrace.cluster.zookeeper.config import ZooKeeperConfig
from headrace.cluster.zookeeper.kazoo_handler import ConnectionThreadHandler

_logger = logging.getLogger(__name__)
_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.WARNING)

_QUIET_SECONDS = 10.0


class RepeatFilter:
    """Filters kazoo's log: no state changes, which this module logs, and each message at most every ten seconds, since
    kazoo logs every failed try to connect."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(("Transition to", "Failed connecting")):
            return False
        message = record.getMessage()
        if record.created - self._last.get(message, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return False
        if len(self._last) > 100:
            self._last.clear()
        self._last[message] = record.created
        return True


_kazoo_logger.addFilter(RepeatFilter())

_KINDS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.CHILD: EventKind.CHILDREN,
}
_CONNECT_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_STOP_SECONDS = 5.0


class RequestLost(Exception):
    """The connection was lost before the response."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """A user's watch, in the form that kazoo keeps. Equal watchers are called once."""

    session: "Session" = field(hash=False)
    path: str
    of_children: bool
    watch: Watch

    def __call__(self, event: Any) -> None:
        """Runs on kazoo's thread."""
        self.session.post(self.session.watch_triggered, self, _KINDS.get(event.type))


class _Reply:
    """Receives the response of a request from kazoo's thread."""

    __slots__ = ("_future", "_session")

    def __init__(self, session: "Session", future: "asyncio.Future[Any]"):
        self._session = session
        self._future = future

    def set(self, value: Any) -> None:
        self._session.post(_set_result, self._future, value)

    def set_exception(self, error: BaseException) -> None:
        self._session.post(self._session.request_failed, self._future, error)


def _set_result(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _set_exception(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class Session:
    """A session. `on_lost` is called on the event loop when it has expired."""

    def __init__(self, config: ZooKeeperConfig, tls: ssl.SSLContext | None, on_lost: Callable[["Session"], None]):
        self.id = 0
        self.password = b""
        self.has_ended = False
        self._config = config
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        """Set while connected, and after the end of the session."""
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._missed: list[Watcher] = []
        """Watches whose events may have been missed while there was no connection."""
        self._client = KazooClient(
            hosts=",".join(config.servers),
            timeout=config.session_timeout_ms / 1000,
            handler=ConnectionThreadHandler(tls),
            connection_retry=dict(_CONNECT_RETRY),
            logger=_kazoo_logger,
        )
        self._client.add_listener(self._state_changed)

    def start(self) -> None:
        """Starts to connect. `wait_connected` waits for the result."""
        self._client.start_async()

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Calls a function on the event loop. For kazoo's thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(function, *arguments)

    @property
    def name(self) -> str:
        return f"{self.id & (1 << 64) - 1:#x}"

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set() and not self.has_ended

    @property
    def last_zxid(self) -> int:
        """The number of the latest change that a response has shown."""
        return int(self._client.last_zxid)

    # ---- requests

    async def wait_connected(self) -> None:
        """Waits for a connection. Raises SessionExpired when the session has ended."""
        await self._connected.wait()
        self._check_open()

    async def call(self, request: Any) -> Any:
        """Sends a request and waits for its response. Raises RequestLost, SessionExpired, or kazoo's error."""
        self._check_open()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._in_flight.add(future)
        try:
            self._client._call(request, _Reply(self, future))
            return await future
        except (ConnectionLoss, SessionMovedError):
            raise RequestLost from None
        except (SessionExpiredError, AuthFailedError):
            raise self._expired() from None
        finally:
            self._in_flight.discard(future)

    def request_failed(self, future: "asyncio.Future[Any]", error: BaseException) -> None:
        if isinstance(error, ConnectionLoss) and not self.has_ended:
            # kazoo fails its requests before it announces the lost connection. A request that is repeated in between
            # fails at once, again and again.
            self._connected.clear()
        _set_exception(future, error)

    def _check_open(self) -> None:
        if self.has_ended:
            raise self._expired()

    def _expired(self) -> SessionExpired:
        return SessionExpired(f"ZooKeeper session {self.name} has expired or was closed")

    # ---- watches

    def watch_triggered(self, watcher: Watcher, kind: EventKind | None) -> None:
        if self.has_ended:
            return
        if kind is None:
            self._missed.append(watcher)
        else:
            self._call_watch(watcher, kind)

    def _call_watch(self, watcher: Watcher, kind: EventKind) -> None:
        try:
            watcher.watch(WatchEvent(kind, watcher.path))
        except Exception:
            _logger.exception("Watch of node %s failed", watcher.path)

    # ---- connection and session

    def _state_changed(self, state: str) -> None:
        """Runs on kazoo's thread."""
        client = self._client
        if state == KazooState.CONNECTED:
            self.post(self._connection_established, *client.client_id)
        elif state == KazooState.SUSPENDED:
            self.post(self._connection_lost)
        else:
            client._stopped.set()  # kazoo's thread ends; otherwise it would open another session
            self.post(self._session_lost, client.client_state == KeeperState.AUTH_FAILED)

    def _connection_established(self, session_id: int, password: bytes) -> None:
        if self.has_ended:
            return
        if self.id:
            _logger.info("Connected to ZooKeeper again; session %s continues", self.name)
        self.id, self.password = session_id, password
        self._connected.set()
        missed, self._missed = self._missed, []
        for watcher in missed:
            self._call_watch(watcher, EventKind.CHILDREN if watcher.of_children else EventKind.CHANGED)

    def _connection_lost(self) -> None:
        if self.has_ended:
            return
        self._connected.clear()
        _logger.warning(
            "Lost the connection to ZooKeeper %s; session %s expires if it is not back within %d ms",
            self._config.connect,
            self.name,
            self._config.session_timeout_ms,
        )

    def _session_lost(self, authentication_failed: bool) -> None:
        if self.has_ended:
            return
        if authentication_failed:
            _logger.error("ZooKeeper %s refused the credentials of this broker", self._config.connect)
        self._end()
        self.release()
        self._on_lost(self)

    def _end(self) -> None:
        self.has_ended = True
        self._connected.set()
        self._missed.clear()
        for future in tuple(self._in_flight):
            _set_exception(future, self._expired())

    async def close(self) -> None:
        """Ends the session. Does not wait for a ZooKeeper that does not respond."""
        if self.has_ended:
            return
        was_connected = self._connected.is_set()
        self._end()
        stopped = self.release()
        if was_connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await stopped.wait()

    def release(self) -> asyncio.Event:
        """Stops kazoo's thread and closes its sockets in the background. Returns an event that is set afterwards."""
        stopped = asyncio.Event()

        def stop() -> None:
            try:
                self._client.stop()
                self._client._connection.stop()
                self._client.close()
            except Exception:
                _logger.debug("Cannot stop the ZooKeeper client", exc_info=True)
            self.post(stopped.set)

        threading.Thread(target=stop, name="headrace-zookeeper-stop", daemon=True).start()
        return stopped
