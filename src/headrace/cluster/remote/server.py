"""Serves an embedded store to other processes on this machine, over a Unix domain socket.

    server = StoreServer(EmbeddedStore(path, clock), socket_path)
    await server.start()

- Each client has a session on the store. A session survives lost connections: it ends when the client closes it, when
  nothing arrives from the client for its session timeout, or with `end_sessions`, when its process is known to be dead.
- The time is counted in checks, so a pause of this process, in which no heartbeat could be read, is not counted.
- The calls of a session are executed one after the other, in the order of their ids.
- Everything belongs to the event loop that called `start`.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.remote.protocol import (
    FrameReader,
    InvalidFrame,
    Message,
    decode_operations,
    encode,
    encode_data,
    encode_error,
    encode_result,
    encode_stat,
)
from headrace.cluster.store import SessionExpired, StoreError, WatchEvent

_logger = logging.getLogger(__name__)

_CHECKS_PER_TIMEOUT = 10
_MAX_PATH_BYTES = 107
"""The limit of the system for the path of a Unix domain socket."""


class _Connection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, server: "StoreServer"):
        self.session: _Session | None = None
        self._server = server
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._server.received(self, message)
        except (InvalidFrame, LookupError, TypeError, ValueError) as error:
            _logger.warning("Closed a connection to the coordination store: invalid message: %r", error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.connections.discard(self)
        if self.session is not None and self.session.connection is self:
            self.session.connection = None

    def send(self, message: Message) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


@dataclass(eq=False)
class _Session:
    """The session of one client."""

    client: str
    store: EmbeddedStore
    timeout_seconds: float
    connection: _Connection | None = None
    silent_seconds: float = 0.0
    """The time since the last message of the client."""
    last_request: int = 0
    calls: deque[Message] = field(default_factory=deque)
    """Received requests that are not executed yet, also the current one."""
    unacknowledged: deque[Message] = field(default_factory=deque)
    """Responses and events that the client may not have received."""
    last_number: int = 0

    @property
    def id(self) -> int:
        return self.store.session_id

    def post(self, kind: str, *fields: Any) -> None:
        """Sends a response or an event, now or when the client is back."""
        self.last_number += 1
        message = [kind, self.last_number, *fields]
        self.unacknowledged.append(message)
        if self.connection is not None:
            self.connection.send(message)

    def acknowledge(self, number: int) -> None:
        while self.unacknowledged and self.unacknowledged[0][1] <= number:
            self.unacknowledged.popleft()


@dataclass(frozen=True)
class _Watch:
    """A watch of a client. Equal watches on a node are called once."""

    session: _Session
    number: int

    def __call__(self, event: WatchEvent) -> None:
        self.session.post("event", self.number, event.kind.value, event.path)


class StoreServer:
    """The server: its socket and the sessions of its clients. It does not close the store."""

    def __init__(self, store: EmbeddedStore, path: Path):
        self.path = path
        self.connections: set[_Connection] = set()
        self._store = store
        self._sessions: dict[int, _Session] = {}
        self._server: asyncio.Server | None = None
        self._check: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listens on the socket, which only this user may use. Raises StoreError."""
        if len(os.fsencode(self.path)) > _MAX_PATH_BYTES:
            raise StoreError(
                f"The path of the socket {self.path} is longer than {_MAX_PATH_BYTES} bytes: use a shorter path in "
                "log.dirs"
            )
        with suppress(FileNotFoundError):
            self.path.unlink()  # of a process that was killed
        loop = asyncio.get_running_loop()
        previous = os.umask(0o177)
        try:
            self._server = await loop.create_unix_server(lambda: _Connection(self), str(self.path))
        except OSError as error:
            raise StoreError(f"Cannot listen on {self.path}: {error.strerror}") from error
        finally:
            os.umask(previous)

    async def end_sessions(self, client: str) -> None:
        """Ends the sessions of a client whose process is dead."""
        for session in [session for session in self._sessions.values() if session.client == client]:
            await self._end(session)

    async def close(self) -> None:
        """Ends all sessions and closes the socket."""
        if self._check is not None:
            self._check.cancel()
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions.values()):
            await self._end(session)
        for connection in tuple(self.connections):
            connection.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(FileNotFoundError):
            self.path.unlink()

    # ---- sessions

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, session: _Session) -> None:
        if self._sessions.pop(session.id, None) is None:
            return
        await session.store.close()
        if session.connection is not None:
            session.connection.session = None
            session.connection.send(["expired"])
            session.connection = None

    def _schedule_check(self) -> None:
        if not self._sessions:
            self._check = None
            return
        interval = min(session.timeout_seconds for session in self._sessions.values()) / _CHECKS_PER_TIMEOUT
        self._check = asyncio.get_running_loop().call_later(interval, self._check_sessions, interval)

    def _check_sessions(self, interval: float) -> None:
        for session in list(self._sessions.values()):
            session.silent_seconds += interval
            if session.silent_seconds > session.timeout_seconds:
                _logger.warning(
                    "Store session %#x of %s has expired: nothing received for %.0f ms",
                    session.id,
                    session.client,
                    session.silent_seconds * 1000,
                )
                self._spawn(self._end(session))
        self._schedule_check()

    # ---- messages

    def received(self, connection: _Connection, message: Message) -> None:
        kind, *fields = message
        if kind == "connect":
            self._connect(connection, *fields)
            return
        session = connection.session
        if session is None:
            return  # sent before the client learned that its session has expired
        session.silent_seconds = 0.0
        if kind == "request":
            number, request_id = fields[0], fields[1]
            session.acknowledge(number)
            if request_id > session.last_request:
                session.last_request = request_id
                session.calls.append(fields[1:])
                if len(session.calls) == 1:
                    self._spawn(self._execute_calls(session))
        elif kind == "ping":
            session.acknowledge(fields[0])
            connection.send(["pong"])
        elif kind == "close":
            self._spawn(self._close_session(connection, session))
        else:
            raise ValueError(f"unknown message {kind!r}")

    def _connect(self, connection: _Connection, client: str, session_id: int, timeout_ms: float, number: int) -> None:
        if not session_id:
            session = _Session(client, self._store.new_session(), timeout_ms / 1000)
            self._sessions[session.id] = session
            if self._check is None:
                self._schedule_check()
        elif session_id in self._sessions:
            session = self._sessions[session_id]
            if session.connection is not None:
                session.connection.session = None
                session.connection.close()
            session.acknowledge(number)
        else:
            connection.send(["expired"])
            return
        session.connection, connection.session = connection, session
        session.silent_seconds = 0.0
        connection.send(["connected", session.id, session.last_request])
        for message in session.unacknowledged:
            connection.send(message)

    async def _close_session(self, connection: _Connection, session: _Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.connection = connection.session = None
            await session.store.close()
        connection.send(["closed"])

    # ---- calls

    async def _execute_calls(self, session: _Session) -> None:
        while session.calls:
            request_id, call, arguments, watch = session.calls[0]
            error = result = None
            try:
                result = await _execute(session.store, call, arguments, _Watch(session, watch) if watch else None)
            except SessionExpired:
                session.calls.clear()
                return  # the client learns of it with "expired"
            except StoreError as raised:
                error = encode_error(raised)
            except (LookupError, TypeError, ValueError) as raised:
                error = encode_error(StoreError(f"Invalid call {call!r}: {raised!r}"))
            session.calls.popleft()
            session.post("response", request_id, error, result)


async def _execute(store: EmbeddedStore, call: str, arguments: Message, watch: _Watch | None) -> Any:
    if call == "get":
        data, stat = await store.get(arguments[0], watch)
        return [encode_data(data), encode_stat(stat)]
    if call == "exists":
        return encode_stat(await store.exists(arguments[0], watch))
    if call == "children":
        return await store.children(arguments[0], watch)
    if call == "multi":
        return [encode_result(result) for result in await store.multi(decode_operations(arguments))]
    raise StoreError(f"Unknown call {call!r}")
