"""The sockets of a server: listens, admits connections within limits, closes idle ones, and stops in order.

The loop that runs `start` owns the server: no other thread may call its methods.

Counters are plain attributes, because hot code can afford no more than an addition. `metrics` reads them as gauges.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.common.logs import RateLimitedLog
from headrace.common.metrics import Metrics
from headrace.common.principal import Principal
from headrace.net.admission import Admission, ConnectionRates
from headrace.net.connection import Address, FrameHandler, ServerConnection
from headrace.net.limits import Limits
from headrace.net.listeners import (
    OPTIONS_ARE_INHERITED,
    BoundListener,
    Listener,
    join_address,
    open_listener,
    set_connection_options,
)
from headrace.net.receive_memory import BufferHolder, ReceiveMemory
from headrace.net.senders import SenderThreads
from headrace.net.stalled_requests import StalledRequests, describe_request
from headrace.net.tls_channel import TlsChannel
from headrace.net.tls_errors import TlsHandshakeError, describe_for_server
from headrace.net.tls_transport import HANDSHAKE_SECONDS, TlsTransport
from headrace.net.transport import NETWORK_ERRORS, PlainTransport

_logger = logging.getLogger(__name__)

RESERVED_FILES = 256
"""The file descriptors reserved for other uses than connections."""
SENDER_THREADS = 3
"""As many as Apache Kafka has network threads (`num.network.threads`)."""
HANDSHAKE_THREADS = 2
"""The threads that compute TLS handshakes."""
_ACCEPTS_PER_TURN = 16
"""More at a time would be no faster, and would delay other connections."""
_ACCEPT_RETRY_SECONDS = 1.0
_TRIM_SECONDS = 1.0
_MAX_IDLE_CHECK_SECONDS = 30.0
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


@dataclass(slots=True, eq=False)
class _Listening:
    """A listening socket and the name of its listener."""

    name: str
    sock: socket.socket


class TlsListener(Protocol):
    """The TLS settings of a listener: `headrace.security.tls_listener.TlsListener`."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context of new connections. It changes when certificates are reloaded."""

    def principal(self, certificate: bytes | None) -> Principal:
        """Returns who the owner of a client certificate is; None: the client has none. Raises HeadraceError."""


class SocketServer:
    """A server with several listeners and one handler. Call `start`, then `stop_accepting`, `drain` and `close`."""

    def __init__(
        self,
        listeners: list[Listener],
        handler: FrameHandler,
        limits: Limits,
        clock: Clock,
        metrics: Metrics | None = None,
    ):
        self.limits = limits
        self.memory = ReceiveMemory(limits.request_max_bytes, limits.queued_max_bytes)
        self.endpoints: list[BoundListener] = []
        """The open listeners, in order; empty before `start`."""
        self.connections: dict[ServerConnection, None] = {}
        """The open connections, in the order in which they were accepted."""
        self.connections_total = 0
        self.rejected = 0
        """The number of connections refused because of a limit."""
        self.idle_closed = 0
        self.stalled_dropped = 0
        """The number of connections closed because they stopped sending in the middle of a request."""
        self.invalid_frames = 0
        self.frames_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._listeners = listeners
        self._protocols = {listener.name: listener.security_protocol for listener in listeners}
        self._handler = handler
        self._clock = clock
        self._problems = RateLimitedLog(_logger, clock)
        self._loop: asyncio.AbstractEventLoop
        self._senders: SenderThreads
        self._listening: list[_Listening] = []
        self._files_for_connections = _files_for_connections()
        """File descriptors from this one on are not for connections."""
        self._accepting = False
        self._paused = False
        self._accept_retry: asyncio.TimerHandle | None = None
        self._trimmer: asyncio.TimerHandle | None = None
        self._idle_check: asyncio.TimerHandle | None = None
        self._stalled = StalledRequests(self.memory)
        self.rates: ConnectionRates | None = None
        """Limits the rates of new connections, if given."""
        self.tls: Mapping[str, TlsListener] = {}
        """The listeners with TLS, by name. Set it before `start`."""
        self.failed_handshakes = 0
        self._handshakes: ThreadPoolExecutor | None = None
        self._admission = Admission()
        self._per_ip: dict[str, int] = {}
        self._per_listener: dict[str, int] = {}
        self._busy: set[ServerConnection] = set()
        """The connections that `drain` waits for."""
        self._drained: asyncio.Future[None] | None = None
        self._all_lost: asyncio.Future[None] | None = None
        if metrics is not None:
            self._register_metrics(metrics)

    @property
    def connections_open(self) -> int:
        return len(self.connections)

    async def start(self) -> None:
        """Opens all listeners. Raises BindError and opens none if one of them fails."""
        self._loop = asyncio.get_running_loop()
        self._senders = SenderThreads(self._loop, SENDER_THREADS)
        for listener in self._listeners:
            if listener.uses_tls and listener.name not in self.tls:
                raise HeadraceError(f"Listener {listener} uses TLS, but the server has no certificate for it")
        if self.tls:
            self._handshakes = ThreadPoolExecutor(HANDSHAKE_THREADS, "tls-handshake")
        try:
            self._open_listeners()
        except BaseException:
            self.stop_accepting()
            self.endpoints.clear()
            raise
        self._start_accepting()
        self._trim()
        self._check_idle()

    def _open_listeners(self) -> None:
        for listener in self._listeners:
            socks = open_listener(listener, self.limits)
            self._listening += [_Listening(listener.name, sock) for sock in socks]
            self.endpoints.append(BoundListener(listener.name, listener.host, socks[0].getsockname()[1]))

    # ---- accepting

    def stop_accepting(self) -> None:
        """Closes the listening sockets. Connections stay open."""
        self._stop_listening()
        self._admission.close()
        for listening in self._listening:
            listening.sock.close()
        self._listening.clear()

    def _start_accepting(self) -> None:
        self._accept_retry = None
        if not self._accepting and not self._paused:
            self._accepting = True
            for listening in self._listening:
                if not self._admission.is_delayed(listening.name):
                    self._loop.add_reader(listening.sock.fileno(), self._accept, listening)

    def _stop_listening(self) -> None:
        if self._accept_retry is not None:
            self._accept_retry.cancel()
            self._accept_retry = None
        if self._accepting:
            self._accepting = False
            for listening in self._listening:
                self._loop.remove_reader(listening.sock.fileno())

    def _accept(self, listening: _Listening) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = listening.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._problems.log("accept", f"Listener {listening.name}: cannot accept connections: {error.strerror}")
                if error.errno in _OUT_OF_RESOURCES:
                    # The socket stays readable; without a pause the loop would spin.
                    self._stop_listening()
                    self._accept_retry = self._loop.call_later(_ACCEPT_RETRY_SECONDS, self._start_accepting)
                return
            delay_ms = self.rates.accept_delay_ms(listening.name) if self.rates is not None else 0
            if delay_ms:
                self._delay(delay_ms, sock, address, listening.name)
                return
            self._try_to_admit(sock, address, listening.name)

    def _delay(self, delay_ms: int, sock: socket.socket, address: tuple[str, int], listener_name: str) -> None:
        """Admits a connection later, and accepts no others on its listener until then."""
        for listening in self._listening:
            if listening.name == listener_name:
                self._loop.remove_reader(listening.sock.fileno())
        _logger.debug("Listener %s: accepts nothing for %d ms: too many new connections", listener_name, delay_ms)
        self._admission.delay(
            self._loop, listener_name, delay_ms, sock, lambda: self._end_delay(sock, address, listener_name)
        )

    def _end_delay(self, sock: socket.socket, address: tuple[str, int], listener_name: str) -> None:
        self._try_to_admit(sock, address, listener_name)
        if self._accepting:
            for listening in self._listening:
                if listening.name == listener_name:
                    self._loop.add_reader(listening.sock.fileno(), self._accept, listening)

    def _try_to_admit(self, sock: socket.socket, address: tuple[str, int], listener_name: str) -> None:
        try:
            self._admit(sock, address, listener_name)
        except OSError as error:
            # For example, the peer has already closed the connection.
            _logger.debug("Listener %s: a connection failed during setup: %s", listener_name, error)
            sock.close()

    def _admit(self, sock: socket.socket, address: tuple[str, int], listener_name: str) -> None:
        host = sys.intern(_plain_host(address[0]))
        peer = host, address[1]
        reason = self._refusal(listener_name, host, sock.fileno())
        if reason is not None:
            self.rejected += 1
            self._problems.log(
                reason[0], f"Listener {listener_name}: refused a connection from {join_address(*peer)}: {reason[1]}"
            )
            sock.close()
            return
        throttle_ms = self.rates.throttle_ms(listener_name, host) if self.rates is not None else 0
        if throttle_ms:
            self._problems.log(
                "connection_creation_rate",
                f"Listener {listener_name}: refused a connection from {join_address(*peer)}: too many new connections "
                f"from its address (connection_creation_rate)",
            )
            self._admission.close_later(self._loop, throttle_ms, sock)
            return
        sock.setblocking(False)
        if not OPTIONS_ARE_INHERITED:
            set_connection_options(sock)
        connection = self._add_connection(peer, listener_name)
        tls = self.tls.get(listener_name)
        if tls is None:
            connection.connection_made(PlainTransport(self._loop, sock, connection, self._senders))
        else:
            self._start_tls(tls, sock, connection)

    def _start_tls(self, tls: TlsListener, sock: socket.socket, connection: ServerConnection) -> None:
        """Begins the handshake. The handler gets the connection when it is complete."""

        def opened() -> None:
            if not connection.needs_sasl:
                try:
                    connection.principal = tls.principal(transport.channel.peer_certificate)
                except HeadraceError as error:
                    self._handshake_failed(connection, error)
                    transport.abort()
                    return
            connection.connection_made(transport)

        def failed(error: Exception | None) -> None:
            if error is not None:
                self._handshake_failed(connection, error)
            connection.connection_lost(error)

        transport = TlsTransport(
            self._loop,
            sock,
            connection,
            TlsChannel(tls.context, server_side=True),
            on_open=opened,
            on_failed=failed,
            senders=self._senders,
            executor=self._handshakes,
        )
        connection.handshake_started(transport)
        transport.start(
            HANDSHAKE_SECONDS if self.limits.idle_ms < 0 else min(HANDSHAKE_SECONDS, self.limits.idle_ms / 1000)
        )

    def _handshake_failed(self, connection: ServerConnection, error: Exception) -> None:
        self.failed_handshakes += 1
        # Such as the checks of a load balancer, which only open connections.
        has_ended = isinstance(error, TlsHandshakeError) and error.ended
        is_lost = isinstance(error, OSError) and error.errno in NETWORK_ERRORS and not isinstance(error, ssl.SSLError)
        if has_ended or is_lost:
            _logger.debug("Connection %s: lost during the TLS handshake: %s", connection, error)
            return
        reason = describe_for_server(error)
        self._problems.log(f"tls {reason}", f"Failed TLS handshake with {connection}: {reason}")

    def _add_connection(self, peer: Address, listener_name: str) -> ServerConnection:
        now = self._clock.monotonic()
        protocol = self._protocols[listener_name]
        connection = ServerConnection(self, self._handler, self._loop, listener_name, peer, now, protocol)
        self.connections[connection] = None
        self._per_ip[peer[0]] = self._per_ip.get(peer[0], 0) + 1
        self._per_listener[listener_name] = self._per_listener.get(listener_name, 0) + 1
        self.connections_total += 1
        return connection

    def _refusal(self, listener_name: str, host: str, fd: int) -> tuple[str, str] | None:
        """Returns the kind of limit and the reason if a connection from this host must be refused."""
        # The kernel assigns the lowest free descriptor. Without descriptors, log directories would go offline.
        if fd >= self._files_for_connections:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            return "files", f"the process is limited to {limit} open files, and the rest is reserved for logs"
        most = self.limits.listener_max_connections.get(listener_name)
        if most is not None and self._per_listener.get(listener_name, 0) >= most:
            key = f"listener.name.{listener_name.lower()}.max.connections"
            return key, f"{most} connections of the listener are open ({key})"
        if len(self.connections) >= self.limits.max_connections and not self._can_make_room(listener_name):
            return "max.connections", f"{len(self.connections)} connections are open (max.connections)"
        limit = self.limits.per_ip(host)
        if self._per_ip.get(host, 0) >= limit:
            return "max.connections.per.ip", f"{limit} connections from its address are open (max.connections.per.ip)"
        return None

    def _can_make_room(self, listener_name: str) -> bool:
        """Closes the least recently used connection of another listener, for one on the protected listener."""
        if listener_name != self.limits.protected_listener:
            return False
        now = self._clock.monotonic()
        others = [connection for connection in self.connections if connection.listener_name != listener_name]
        if others:
            least_recent = min(others, key=lambda connection: connection.last_active(now))
            least_recent.close("brokers need connections (max.connections)")
        return True

    # ---- pausing, for tests of clients

    def pause(self) -> None:
        """Stops accepting and reading until `resume`, like a stopped process. Outstanding responses are still sent."""
        self._paused = True
        self._stop_listening()
        for connection in self.connections:
            connection.hold_reading()

    def resume(self) -> None:
        """Ends a pause."""
        if self._paused:
            self._paused = False
            self._start_accepting()
            for connection in self.connections:
                connection.resume_held_reading()

    # ---- stopping

    async def drain(self, timeout: float) -> bool:
        """Stops reading and waits until outstanding responses are sent. Returns False if some are not sent in time."""
        self.stop_accepting()
        for connection in self.connections:
            connection.hold_reading()
        self._busy = {connection for connection in self.connections if not connection.quiet}
        if self._busy:
            self._drained = self._loop.create_future()
            try:
                await asyncio.wait_for(self._drained, timeout)
            except TimeoutError:
                _logger.warning(
                    "Stopping: %d connections still have unsent responses after %s seconds; they are dropped",
                    len(self._busy),
                    timeout,
                )
                return False
            finally:
                self._drained = None
                self._busy = set()
        return True

    async def close(self) -> None:
        """Closes all connections. Returns after the handler was notified of every closed connection."""
        self.stop_accepting()
        for timer in (self._trimmer, self._idle_check):
            if timer is not None:
                timer.cancel()
        self._trimmer = self._idle_check = None
        if self.connections:
            self._all_lost = self._loop.create_future()
            for connection in list(self.connections):
                connection.close("the server stops")
            await self._all_lost
        await self._loop.run_in_executor(None, self._senders.close)
        if self._handshakes is not None:
            self._handshakes.shutdown(wait=False)
        self.memory.trim()

    # ---- called by connections

    def connection_quiet(self, connection: ServerConnection) -> None:
        self._busy.discard(connection)
        if not self._busy and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def connection_lost(self, connection: ServerConnection) -> None:
        self.connections.pop(connection, None)
        host = connection.peer[0]
        remaining_connections = self._per_ip[host] - 1
        if remaining_connections:
            self._per_ip[host] = remaining_connections
        else:
            del self._per_ip[host]
        self._per_listener[connection.listener_name] -= 1
        self.connection_quiet(connection)
        if not self.connections and self._all_lost is not None and not self._all_lost.done():
            self._loop.call_soon(self._all_lost.set_result, None)

    # ---- periodic work

    def _trim(self) -> None:
        self._trimmer = self._loop.call_later(_TRIM_SECONDS, self._trim)
        self._files_for_connections = _files_for_connections()
        self.memory.trim()
        self.drop_stalled()

    def drop_stalled(self) -> None:
        """Closes connections that stopped sending in the middle of a request and keep its memory."""
        stalled = self._stalled.check()
        if not stalled:
            return
        connections: dict[BufferHolder, ServerConnection] = {found.frames: found for found in self.connections}
        for frames in stalled:
            connection = connections[frames]
            if not (connection.waits_for_peer or (self.memory.waiters and connection.holds_memory_unread)):
                self._stalled.excuse(frames)
            elif self._stalled.must_drop(frames):
                self.stalled_dropped += 1
                self._problems.log(
                    "stalled",
                    f"Connection {connection}: dropped {describe_request(connection.frames.started_frame)}: "
                    f"{self._stalled.reason(frames)}",
                )
                connection.close("stalled request")

    def _check_idle(self) -> None:
        """Closes idle connections, and schedules the next check after a twentieth of the idle limit."""
        seconds = _MAX_IDLE_CHECK_SECONDS
        if self.limits.idle_ms >= 0:
            seconds = max(min(seconds, self.limits.idle_ms / 20_000), 0.01)
        self._idle_check = self._loop.call_later(seconds, self._check_idle)
        self.close_idle()

    def close_idle(self) -> None:
        """Closes connections that have been idle for too long."""
        limit = self.limits.idle_ms / 1000
        if self._paused or limit < 0:
            return
        now = self._clock.monotonic()
        for connection in self.connections:
            if connection.idle_seconds(now) > limit:
                self.idle_closed += 1
                connection.close(f"idle for {limit:g} seconds (connections.max.idle.ms)")

    def _register_metrics(self, metrics: Metrics) -> None:
        metrics.gauge("net_connections_open", lambda: self.connections_open)
        metrics.gauge("net_connections_total", lambda: self.connections_total)
        metrics.gauge("net_connections_rejected_total", lambda: self.rejected)
        metrics.gauge("net_connections_throttled_total", lambda: self._admission.throttled)
        metrics.gauge("net_connections_idle_closed_total", lambda: self.idle_closed)
        metrics.gauge("net_tls_handshakes_failed_total", lambda: self.failed_handshakes)
        metrics.gauge("net_stalled_requests_dropped_total", lambda: self.stalled_dropped)
        metrics.gauge("net_request_memory_bytes", lambda: self.memory.held_bytes)
        metrics.gauge("net_invalid_frames_total", lambda: self.invalid_frames)
        metrics.gauge("net_frames_in_total", lambda: self.frames_in)
        metrics.gauge("net_bytes_in_total", lambda: self.bytes_in)
        metrics.gauge("net_bytes_out_total", lambda: self.bytes_out)


def _files_for_connections() -> float:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if limit == resource.RLIM_INFINITY else limit - min(RESERVED_FILES, limit // 4)


def _plain_host(host: str) -> str:
    """Returns `10.0.0.1` for `::ffff:10.0.0.1`, the address of an IPv4 peer on a dual-stack socket."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host
