"""A session on a coordination store in another process of this machine: the client of `server.StoreServer`.

    store = await RemoteStore.open(socket_path, "broker 1", session_timeout_ms=18_000)

- A lost connection is not a lost session: the client connects again, and both sides send again what the other has not
  received. Calls wait meanwhile, and each write is executed once.
- When the session has expired, its calls fail with SessionExpired, its watches are dropped, and the session listeners
  get LOST. Then a new session is opened, and they get ESTABLISHED. Calls in between wait for the new session.
- After `abandon` all calls fail at once: the process of the store is gone for good.
- Everything belongs to the event loop that called `open`.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.cluster.remote.protocol import (
    FrameReader,
    InvalidFrame,
    Message,
    decode_data,
    decode_error,
    decode_result,
    decode_stat,
    encode,
    encode_operations,
)
from headrace.cluster.store import (
    ANY_VERSION,
    ConnectionLoss,
    Create,
    Delete,
    EventKind,
    Operation,
    OperationResult,
    SessionExpired,
    SessionListener,
    SessionState,
    Set,
    Stat,
    Watch,
    WatchEvent,
)

_logger = logging.getLogger(__name__)

_PINGS_PER_TIMEOUT = 4
_RECONNECT_SECONDS = 0.1
_CLOSE_SECONDS = 2.0


class _Connection(asyncio.Protocol):
    """One connection to the server."""

    def __init__(self, store: "RemoteStore"):
        self.lost = asyncio.get_running_loop().create_future()
        self._store = store
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._store.received(self, message)
        except InvalidFrame as error:
            _logger.error("Closed the connection to the coordination store: %s", error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.lost.done():
            self.lost.set_result(None)

    def send(self, message: Message) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@dataclass(eq=False)
class _Call:
    """A call without a response."""

    message: Message
    """Call, arguments and number of the watch."""
    future: "asyncio.Future[Any]"
    watch: "_Registration | None"


@dataclass(eq=False)
class _Registration:
    """A watch on one node: set by reads, called once by an event.

    An event that arrives before the response of a read belongs to an earlier read. The later one has set the watch
    again.
    """

    number: int
    key: tuple[str, bool, Watch]
    reads: int = 0
    """Reads without a response."""
    is_set: bool = False


class RemoteStore:
    """A session on a store in another process. Implements `store.CoordinationStore`."""

    def __init__(self, path: Path, client: str, session_timeout_ms: float):
        """Use `open`."""
        self._path = path
        self._client = client
        self._timeout_ms = session_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._session_id = 0
        self._connection: _Connection | None = None
        self._is_connected = False
        """The session is usable on the current connection."""
        self._received = 0
        self._next_id = 1
        self._calls: dict[int, _Call] = {}
        self._watches: dict[int, _Registration] = {}
        self._watch_numbers: dict[tuple[str, bool, Watch], int] = {}
        self._listeners: list[SessionListener] = []
        self._is_closed = False
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._ping: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._keep_connected(), name="coordination-store")

    @classmethod
    async def open(
        cls, path: Path, client: str, session_timeout_ms: float, connect_timeout_ms: float = 10_000
    ) -> "RemoteStore":
        """Opens a session. Raises ConnectionLoss if the server cannot be reached."""
        store = cls(path, client, session_timeout_ms)
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await store._opened
        except TimeoutError:
            store.abandon()
            raise ConnectionLoss(
                f"Cannot connect to the coordination store at {path} within {connect_timeout_ms:.0f} ms"
            ) from None
        except BaseException:
            store.abandon()
            raise
        return store

    @property
    def session_id(self) -> int:
        return self._session_id

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    # ---- connection and session

    async def _keep_connected(self) -> None:
        while True:
            connection = _Connection(self)
            try:
                await self._loop.create_unix_connection(lambda: connection, str(self._path))  # noqa: B023
            except OSError:
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            self._connection = connection
            self._connect()
            self._send_ping()
            try:
                await connection.lost
            finally:
                self._connection, self._is_connected = None, False
            _logger.warning("%s: lost the connection to the coordination store, connecting again", self._client)

    def _connect(self) -> None:
        self._send(["connect", self._client, self._session_id, self._timeout_ms, self._received])

    def _send_ping(self) -> None:
        if self._ping is not None:
            self._ping.cancel()
        if self._connection is not None:
            if self._is_connected:
                self._send(["ping", self._received])
            self._ping = self._loop.call_later(self._timeout_ms / 1000 / _PINGS_PER_TIMEOUT, self._send_ping)

    def _send(self, message: Message) -> None:
        if self._connection is not None:
            self._connection.send(message)

    def received(self, connection: _Connection, message: Message) -> None:
        if connection is not self._connection:
            return
        kind, *fields = message
        if kind == "connected":
            self._connected(*fields)
        elif kind == "expired":
            if self._is_closed:
                self._has_ended()
            else:
                self._expired()
        elif kind == "closed":
            self._has_ended()
        elif kind in ("response", "event") and fields[0] > self._received:
            self._received = fields[0]
            if kind == "response":
                self._response(*fields[1:])
            else:
                self._event(*fields[1:])

    def _connected(self, session_id: int, last_request: int) -> None:
        is_new = session_id != self._session_id
        self._session_id = session_id
        self._is_connected = True
        if self._is_closed:
            self._send(["close"])
            return
        for request_id, call in list(self._calls.items()):
            if is_new or request_id > last_request:
                self._send_call(request_id, call)
        if not self._opened.done():
            self._opened.set_result(None)
        elif is_new:
            self._notify_listeners(SessionState.ESTABLISHED)

    def _has_ended(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _expired(self) -> None:
        _logger.warning(
            "%s: the session %#x with the coordination store has expired, opening a new session",
            self._client,
            self._session_id,
        )
        self._end_session("has expired")
        self._notify_listeners(SessionState.LOST)
        self._connect()

    def _end_session(self, reason: str) -> None:
        name = f"{self._session_id:#x}"
        self._session_id = self._received = 0
        self._is_connected = False
        self._watches.clear()
        self._watch_numbers.clear()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.future.done():
                call.future.set_exception(SessionExpired(f"Session {name} {reason}"))

    def _notify_listeners(self, state: SessionState) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(state)
            except Exception:
                _logger.exception("Session listener failed at %s", state.name)

    # ---- calls

    async def _call(self, call: str, arguments: Message, watch: tuple[str, bool, Watch] | None = None) -> Any:
        if self._is_closed:
            raise SessionExpired("The session was closed")
        request_id, self._next_id = self._next_id, self._next_id + 1
        registration = None if watch is None else self._register(watch, request_id)
        message = [call, arguments, registration.number if registration is not None else 0]
        pending = self._calls[request_id] = _Call(message, self._loop.create_future(), registration)
        if self._is_connected:
            self._send_call(request_id, pending)
        return await pending.future

    def _send_call(self, request_id: int, call: _Call) -> None:
        self._send(["request", self._received, request_id, *call.message])

    def _response(self, request_id: int, error: Message | None, result: Any) -> None:
        call = self._calls.pop(request_id, None)
        if call is None:
            return
        if call.watch is not None:
            call.watch.reads -= 1
            call.watch.is_set |= error is None
            self._forget_if_unused(call.watch)
        if call.future.done():
            return  # the caller was cancelled
        if error is None:
            call.future.set_result(result)
        else:
            call.future.set_exception(decode_error(error))

    # ---- watches

    def _register(self, key: tuple[str, bool, Watch], number: int) -> _Registration:
        number = self._watch_numbers.setdefault(key, number)
        registration = self._watches.setdefault(number, _Registration(number, key))
        registration.reads += 1
        return registration

    def _forget_if_unused(self, registration: _Registration) -> None:
        if not registration.is_set and not registration.reads and registration.number in self._watches:
            del self._watches[registration.number]
            del self._watch_numbers[registration.key]

    def _event(self, number: int, kind: str, path: str) -> None:
        registration = self._watches.get(number)
        if registration is None:
            return
        registration.is_set = False
        self._forget_if_unused(registration)
        registration.key[2](WatchEvent(EventKind(kind), path))

    # ---- reading and writing

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        data, fields = await self._call("get", [path], None if watch is None else (path, False, watch))
        stat = decode_stat(fields)
        assert stat is not None
        return decode_data(data), stat

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return decode_stat(await self._call("exists", [path], None if watch is None else (path, False, watch)))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._call("children", [path], None if watch is None else (path, True, watch))
        return names

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
        results = await self._call("multi", encode_operations(operations))
        return [decode_result(result) for result in results]

    # ---- end

    def abandon(self) -> None:
        """Ends without a word to the server: all calls fail with SessionExpired, now and later."""
        if self._is_closed:
            return
        self._is_closed = True
        self._end_session("was given up: the process of the coordination store is gone")
        self._end_connection()

    def _end_connection(self) -> None:
        self._task.cancel()
        if self._ping is not None:
            self._ping.cancel()
        if self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        """Closes the session, if the server can be reached soon. Otherwise the session expires."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_connected:
            self._send(["close"])
        if self._session_id:
            await asyncio.wait((self._ended,), timeout=_CLOSE_SECONDS)
        self._end_session("was closed")
        self._end_connection()
        await asyncio.gather(self._task, return_exceptions=True)
