"""The link to one broker for one purpose. It has at most one connection at a time, and reconnects when needed.

    IDLE -> CONNECTING -> READY -> (lost) IDLE, after a wait
              `-> (failed) IDLE, after a longer wait

During a re-authentication, a ready connection takes no other requests: they wait until it is done.

The loop owns a link. The wait before reconnecting and the connection setup timeout grow exponentially, with jitter
(KIP-144, KIP-601). A new connection resets both.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from headrace.common.backoff import Backoff
from headrace.common.errors import KafkaError
from headrace.common.ids import Random
from headrace.net.broker_connection import BrokerConnection, ResponseFuture
from headrace.net.dialer import Dialer
from headrace.net.errors import KafkaConnectionError, NodeNotReadyError, SslAuthenticationError, describe_os_error
from headrace.net.link_stats import LinkStats
from headrace.net.nodes import Node
from headrace.net.responses import ResponseMemory
from headrace.net.tls_errors import is_permanent
from headrace.protocol import Message

_logger = logging.getLogger(__name__)


class LinkState(Enum):
    """The state of a link. The values are librdkafka's names in its statistics."""

    IDLE = "INIT"
    WAITING = "TRY_CONNECT"
    CONNECTING = "CONNECT"
    READY = "UP"
    CLOSED = "DOWN"


@dataclass(frozen=True)
class NetConfig:
    """The configuration of the pool and its connections."""

    client_id: str = ""
    software_version: str = "0"
    request_timeout_ms: float = 30_000
    reconnect_backoff_ms: float = 50
    reconnect_backoff_max_ms: float = 1000
    setup_timeout_ms: float = 10_000
    setup_timeout_max_ms: float = 30_000
    max_idle_ms: float = 540_000
    """Negative: idle connections are never closed."""
    max_in_flight: int = 1000
    """The largest number of requests in flight on one connection."""
    max_response_bytes: int = 100_000_000
    rebootstrap: bool = True
    """If True, the client returns to the bootstrap addresses when no known broker is reachable."""
    tls_errors_are_final: bool = True
    """If True, wrong certificates raise SslAuthenticationError. Otherwise the broker cannot be reached for now."""
    authenticate: Callable[[BrokerConnection], Awaitable[float | None]] | None = None
    """The hook for SASL: called on a new connection after the API versions are known, before other requests. Returns
    the seconds after which the connection must authenticate again (KIP-368), or None for never."""


class PoolEvents(Protocol):
    """The events of the pool. The methods are called on the loop and must neither block nor raise."""

    def connected(self, node: Node, purpose: str) -> None: ...

    def disconnected(self, node: Node, purpose: str, error: KafkaError | None) -> None:
        """A ready connection was closed. The error is None if it was idle or the client closed it."""

    def connect_failed(self, node: Node, purpose: str, error: KafkaError) -> None: ...

    def throttled(self, node: Node, api_key: int, throttle_time_ms: int) -> None: ...


class NoEvents:
    """Ignores all events."""

    def connected(self, node: Node, purpose: str) -> None: ...

    def disconnected(self, node: Node, purpose: str, error: KafkaError | None) -> None: ...

    def connect_failed(self, node: Node, purpose: str, error: KafkaError) -> None: ...

    def throttled(self, node: Node, api_key: int, throttle_time_ms: int) -> None: ...


class BrokerLink:
    """The link to one broker. Requests wait here for a connection, for the end of throttling, and for their turn."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: Node,
        purpose: str,
        config: NetConfig,
        dialer: Dialer,
        memory: ResponseMemory,
        random: Random,
        events: PoolEvents,
    ):
        self.node = node
        self.purpose = purpose
        self.stats = LinkStats()
        self.state = LinkState.IDLE
        self.state_since = loop.time()
        self.failures = 0
        """Failed attempts since a connection was last established."""
        self.retry_at = 0.0
        """The earliest time of the next attempt to connect, on the loop's clock."""
        self.throttled_until = 0.0
        self.last_error: KafkaError | None = None
        self.connection: BrokerConnection | None = None
        """The ready connection."""
        self._loop = loop
        self._config = config
        self._dialer = dialer
        self._memory = memory
        self._events = events
        self._backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, random)
        self._setup_timeout = Backoff(config.setup_timeout_ms, config.setup_timeout_max_ms, random)
        self._attempt = 0
        self._is_disconnecting = False
        """True if this client is closing the connection."""
        self._connecting: asyncio.Task[BrokerConnection] | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._reauthentication: asyncio.Task[None] | None = None
        self._reauthentication_timer: asyncio.TimerHandle | None = None

    # ---- state

    @property
    def is_ready(self) -> bool:
        """True if a request can be sent immediately."""
        connection = self.connection
        return (
            connection is not None
            and self._reauthentication is None
            and connection.in_flight < self._config.max_in_flight
            and (not self.throttled_until or self._loop.time() >= self.throttled_until)
        )

    @property
    def is_reauthenticating(self) -> bool:
        return self._reauthentication is not None

    @property
    def in_flight(self) -> int:
        return 0 if self.connection is None else self.connection.in_flight

    @property
    def is_backing_off(self) -> bool:
        return self.connection is None and self.state is not LinkState.CONNECTING and self._loop.time() < self.retry_at

    @property
    def load(self) -> int:
        """The number of requests in flight or waiting."""
        return self.in_flight + len(self._waiters)

    # ---- requests

    def send_now(
        self, request: Message, version: int, timeout_ms: float, expect_response: bool = True
    ) -> ResponseFuture:
        """Sends a request if `is_ready`. Raises NodeNotReadyError otherwise."""
        if not self.is_ready or self.connection is None:
            raise NodeNotReadyError(f"no connection to {self.node} can take a request now")
        return self.connection.send(request, version, timeout_ms, expect_response)

    async def ready(self) -> BrokerConnection:
        """Returns the connection once it can take a request; connects if necessary. Raises KafkaConnectionError."""
        while True:
            connection = self.connection or await self.connect()
            if connection.closed:
                continue
            if self._reauthentication is not None:
                await asyncio.wait([self._reauthentication])
                continue
            wait = self.throttled_until - self._loop.time() if self.throttled_until else 0.0
            if wait > 0:
                await asyncio.sleep(wait)
            elif connection.in_flight < self._config.max_in_flight:
                return connection
            else:
                waiter: asyncio.Future[None] = self._loop.create_future()
                self._waiters.append(waiter)
                try:
                    await waiter
                finally:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)

    async def connect(self) -> BrokerConnection:
        """Returns the connection once it is established. All callers share one attempt."""
        if self.connection is not None:
            return self.connection
        attempt = self.start_connecting()
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if attempt.cancelled() and not (caller and caller.cancelling()):
                raise KafkaConnectionError(f"the client closed its connections to {self.node}") from None
            raise

    def start_connecting(self) -> "asyncio.Task[BrokerConnection]":
        """Starts an attempt to connect, after the back-off, unless one is in progress."""
        if self.state is LinkState.CLOSED:
            raise KafkaConnectionError(f"the client closed its connections to {self.node}")
        if self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())
            self._connecting.add_done_callback(_retrieve_outcome)
        return self._connecting

    async def _connect(self) -> BrokerConnection:
        config = self._config
        try:
            wait = self.retry_at - self._loop.time()
            if wait > 0:
                self._enter(LinkState.WAITING)
                await asyncio.sleep(wait)
            self._enter(LinkState.CONNECTING)
            connection = BrokerConnection(
                self._loop,
                self.node,
                config.client_id,
                config.max_response_bytes,
                self._memory,
                self.stats,
                self._lost,
                self._received,
            )
            timeout_ms = self._setup_timeout.wait_ms(self.failures)
            reauthenticate_after: float | None = None
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._dialer.dial(self.node.host, self.node.port, self._attempt, connection)
                    await connection.negotiate(config.software_version, 2 * timeout_ms)
                    if config.authenticate is not None:
                        reauthenticate_after = await config.authenticate(connection)
            except BaseException as error:
                connection.close("it could not be established")
                if isinstance(error, TimeoutError):
                    text = f"could not connect to {self.node}: not established within {timeout_ms:.0f} ms"
                    raise self._failed(KafkaConnectionError(text)) from None
                tls_error = connection.tls_error or error
                if config.tls_errors_are_final and isinstance(tls_error, OSError) and is_permanent(tls_error):
                    text = f"could not connect to {self.node}: {describe_os_error(tls_error)}"
                    raise self._failed(SslAuthenticationError(text)) from error
                if isinstance(error, OSError):
                    text = f"could not connect to {self.node}: {describe_os_error(error)}"
                    raise self._failed(KafkaConnectionError(text)) from error
                if isinstance(error, KafkaError):
                    raise self._failed(error) from None
                raise
            if connection.closed:
                raise self._failed(
                    KafkaConnectionError(f"the connection to {self.node} was lost while it was being established")
                )
            self.connection = connection
            self.failures = 0
            self.stats.connects += 1
            self._enter(LinkState.READY)
            _logger.debug("Connected to %s%s", self.node, f" for {self.purpose}" if self.purpose else "")
            self._events.connected(self.node, self.purpose)
            self._schedule_reauthentication(connection, reauthenticate_after)
            return connection
        finally:
            self._connecting = None
            if self.connection is None and self.state is not LinkState.CLOSED:
                self._enter(LinkState.IDLE)

    def _failed(self, error: KafkaError) -> KafkaError:
        """Records a failed attempt and the time of the next one. Returns the error."""
        self._attempt += 1
        self.stats.tx_errors += 1
        self.last_error = error
        self._wait_before_retry()
        _logger.debug("%s", error)
        self._events.connect_failed(self.node, self.purpose, error)
        return error

    def _wait_before_retry(self) -> None:
        self.retry_at = self._loop.time() + self._backoff.wait_seconds(self.failures)
        self.failures += 1

    # ---- re-authentication

    def _schedule_reauthentication(self, connection: BrokerConnection, after_seconds: float | None) -> None:
        self._cancel_reauthentication()
        if after_seconds is not None:
            self._reauthentication_timer = self._loop.call_later(
                after_seconds, self._start_reauthentication, connection
            )

    def _cancel_reauthentication(self) -> None:
        if self._reauthentication_timer is not None:
            self._reauthentication_timer.cancel()
            self._reauthentication_timer = None

    def _start_reauthentication(self, connection: BrokerConnection) -> None:
        self._reauthentication_timer = None
        if connection is self.connection and not connection.closed:
            self._reauthentication = self._loop.create_task(self._reauthenticate(connection))

    async def _reauthenticate(self, connection: BrokerConnection) -> None:
        """Authenticates again while other requests wait. A failure closes the connection; a new one will show if the
        credentials are still valid."""
        authenticate = self._config.authenticate
        assert authenticate is not None
        after_seconds: float | None = None
        try:
            after_seconds = await authenticate(connection)
            _logger.debug("Authenticated again with %s", self.node)
        except (KafkaError, OSError) as error:
            connection.close(f"re-authentication failed: {error}")
        finally:
            self._reauthentication = None
            if connection is self.connection and not connection.closed:
                self._schedule_reauthentication(connection, after_seconds)
                self._wake_waiters(len(self._waiters))

    # ---- called by connections

    def _lost(self, connection: BrokerConnection, error: KafkaConnectionError | None) -> None:
        if connection is not self.connection:
            return  # never established: the attempt reports the error
        self.connection = None
        self.throttled_until = 0.0
        self._cancel_reauthentication()
        self.stats.disconnects += 1
        if self.state is not LinkState.CLOSED:
            self._enter(LinkState.IDLE)
            self._wait_before_retry()
            self.last_error = error
            _logger.debug("%s", error)
        self._events.disconnected(self.node, self.purpose, None if self._is_disconnecting else error)
        self._wake_waiters(len(self._waiters))

    def _received(self, connection: BrokerConnection, api_key: int, message: Message) -> None:  # noqa: ARG002
        throttle_ms = getattr(message, "throttle_time_ms", 0)
        if throttle_ms > 0:
            # The broker reads nothing from this connection for that long, so requests would only seem slow (KIP-219).
            self.stats.throttle.record(throttle_ms)
            self.throttled_until = max(self.throttled_until, self._loop.time() + throttle_ms / 1000)
            self._events.throttled(self.node, api_key, throttle_ms)
        if self._waiters:
            self._wake_waiters(1)

    def _wake_waiters(self, count: int) -> None:
        while count and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _enter(self, state: LinkState) -> None:
        self.state = state
        self.state_since = self._loop.time()

    # ---- closing

    def disconnect(self, reason: str) -> None:
        """Closes the connection. The next request opens another one."""
        connection = self.connection
        if connection is not None:
            self._is_disconnecting = True
            connection.close(reason)
            self._is_disconnecting = False
            self.retry_at = 0.0
            self.failures = 0

    def close_if_idle(self, idle_ms: float) -> None:
        """Closes the connection if it has not been used for this long."""
        connection = self.connection
        if connection is None or connection.in_flight or self._waiters:
            return
        if (self._loop.time() - connection.last_used) * 1000 >= idle_ms:
            self.disconnect(f"idle for {idle_ms:.0f} ms")

    async def close(self) -> None:
        """Closes the connection for good."""
        if self.state is LinkState.CLOSED:
            return
        self._enter(LinkState.CLOSED)
        self._is_disconnecting = True
        self._cancel_reauthentication()
        tasks = [task for task in (self._connecting, self._reauthentication) if task is not None]
        if self.connection is not None:
            self.connection.close()
        self._wake_waiters(len(self._waiters))
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _retrieve_outcome(task: "asyncio.Task[BrokerConnection]") -> None:
    """Retrieves the exception of an attempt, in case no caller is waiting for it."""
    if not task.cancelled():
        task.exception()
