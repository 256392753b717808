"""The way to one broker, for one purpose: at most one connection at a time, made when it is needed and made again.

    IDLE -> CONNECTING -> READY -> (lost) IDLE, after a wait
              `-> (failed) IDLE, after a longer wait

Belongs to the loop. Waits before a broker is dialled again grow exponentially with jitter, and so does the time that a
connection may take to come up (KIP-144, KIP-601); both begin anew when a connection has come up.
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
from headrace.net.broker_connection import BrokerConnection, ReplyFuture
from headrace.net.dialer import Dialer
from headrace.net.errors import KafkaConnectionError, NodeNotReadyError
from headrace.net.link_stats import LinkStats
from headrace.net.nodes import Node
from headrace.net.replies import ReplyMemory
from headrace.protocol import Message

_logger = logging.getLogger(__name__)


class LinkState(Enum):
    """Values are librdkafka's names in its statistics."""

    IDLE = "INIT"
    WAITING = "TRY_CONNECT"
    CONNECTING = "CONNECT"
    READY = "UP"
    CLOSED = "DOWN"


@dataclass(frozen=True)
class NetSettings:
    """What the pool and its connections go by; times in milliseconds."""

    client_id: str = ""
    software_version: str = "0"
    request_timeout_ms: float = 30_000
    reconnect_backoff_ms: float = 50
    reconnect_backoff_max_ms: float = 1000
    setup_timeout_ms: float = 10_000
    setup_timeout_max_ms: float = 30_000
    max_idle_ms: float = 540_000
    """Negative: connections are never closed for being idle."""
    max_in_flight: int = 1000
    """Requests that may wait for their replies on one connection."""
    max_reply_bytes: int = 100_000_000
    rebootstrap: bool = True
    """Whether bootstrap addresses are tried again when no known broker can be reached."""
    authenticate: Callable[[BrokerConnection], Awaitable[None]] | None = None
    """Called on a connection whose versions are known, before anything else is sent: where SASL comes in."""


class PoolEvents(Protocol):
    """What the pool tells; called on the loop, and must neither block nor raise."""

    def connected(self, node: Node, purpose: str) -> None: ...

    def disconnected(self, node: Node, purpose: str, error: KafkaError | None) -> None:
        """A connection that was ready is gone. Without an error it was closed for being idle, or with the client."""

    def connect_failed(self, node: Node, purpose: str, error: KafkaError) -> None: ...

    def throttled(self, node: Node, api_key: int, throttle_time_ms: int) -> None: ...


class NoEvents:
    """For who does not want to know."""

    def connected(self, node: Node, purpose: str) -> None: ...

    def disconnected(self, node: Node, purpose: str, error: KafkaError | None) -> None: ...

    def connect_failed(self, node: Node, purpose: str, error: KafkaError) -> None: ...

    def throttled(self, node: Node, api_key: int, throttle_time_ms: int) -> None: ...


class BrokerLink:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: Node,
        purpose: str,
        settings: NetSettings,
        dialer: Dialer,
        memory: ReplyMemory,
        random: Random,
        events: PoolEvents,
    ):
        self.node = node
        self.purpose = purpose
        self.stats = LinkStats()
        self.state = LinkState.IDLE
        self.state_since = loop.time()
        self.failures = 0
        """Attempts that have failed since a connection last came up."""
        self.retry_at = 0.0
        """The broker is not dialled before this time of the loop."""
        self.throttled_until = 0.0
        self.last_error: KafkaError | None = None
        self.connection: BrokerConnection | None = None
        """The one that is ready."""
        self._loop = loop
        self._settings = settings
        self._dialer = dialer
        self._memory = memory
        self._events = events
        self._backoff = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, random)
        self._setup_timeout = Backoff(settings.setup_timeout_ms, settings.setup_timeout_max_ms, random)
        self._attempt = 0
        self._hangs_up = False
        """Whether it is us who hang up."""
        self._connecting: asyncio.Task[BrokerConnection] | None = None
        self._turns: deque[asyncio.Future[None]] = deque()

    # ---- what it is good for now

    @property
    def is_ready(self) -> bool:
        """Whether a request would be sent at once."""
        connection = self.connection
        return (
            connection is not None
            and connection.in_flight < self._settings.max_in_flight
            and (not self.throttled_until or self._loop.time() >= self.throttled_until)
        )

    @property
    def in_flight(self) -> int:
        return 0 if self.connection is None else self.connection.in_flight

    @property
    def is_backing_off(self) -> bool:
        return self.connection is None and self.state is not LinkState.CONNECTING and self._loop.time() < self.retry_at

    @property
    def load(self) -> int:
        """Requests that are in flight or wait for their turn."""
        return self.in_flight + len(self._turns)

    # ---- requests

    def send_now(self, request: Message, version: int, timeout_ms: float, expect_response: bool = True) -> ReplyFuture:
        """Only if `is_ready`."""
        if not self.is_ready or self.connection is None:
            raise NodeNotReadyError(f"there is no connection to {self.node} that takes a request now")
        return self.connection.send(request, version, timeout_ms, expect_response)

    async def ready(self) -> BrokerConnection:
        """The connection, when it takes a request; made if there is none. Raises KafkaConnectionError if that fails."""
        while True:
            connection = self.connection or await self.connect()
            if connection.closed:
                continue
            wait = self.throttled_until - self._loop.time() if self.throttled_until else 0.0
            if wait > 0:
                await asyncio.sleep(wait)
            elif connection.in_flight < self._settings.max_in_flight:
                return connection
            else:
                turn: asyncio.Future[None] = self._loop.create_future()
                self._turns.append(turn)
                try:
                    await turn
                finally:
                    if turn in self._turns:
                        self._turns.remove(turn)

    async def connect(self) -> BrokerConnection:
        """The connection, once it can be used. Everybody who waits for it waits for the same attempt."""
        if self.connection is not None:
            return self.connection
        attempt = self.start_connecting()
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if attempt.cancelled() and not (caller and caller.cancelling()):
                raise KafkaConnectionError(f"the client has closed its connections to {self.node}") from None
            raise

    def start_connecting(self) -> "asyncio.Task[BrokerConnection]":
        """Begins an attempt (after the wait that is due) unless one is under way."""
        if self.state is LinkState.CLOSED:
            raise KafkaConnectionError(f"the client has closed its connections to {self.node}")
        if self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())
            self._connecting.add_done_callback(_look_at_outcome)
        return self._connecting

    async def _connect(self) -> BrokerConnection:
        settings = self._settings
        try:
            wait = self.retry_at - self._loop.time()
            if wait > 0:
                self._enter(LinkState.WAITING)
                await asyncio.sleep(wait)
            self._enter(LinkState.CONNECTING)
            connection = BrokerConnection(
                self._loop,
                self.node,
                settings.client_id,
                settings.max_reply_bytes,
                self._memory,
                self.stats,
                self._lost,
                self._replied,
            )
            timeout_ms = self._setup_timeout.wait_ms(self.failures)
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._dialer.dial(self.node.host, self.node.port, self._attempt, connection)
                    await connection.negotiate(settings.software_version, 2 * timeout_ms)
                    if settings.authenticate is not None:
                        await settings.authenticate(connection)
            except BaseException as error:
                connection.close("it did not come up")
                if isinstance(error, TimeoutError):
                    text = f"could not connect to {self.node}: it did not come up in {timeout_ms / 1000:.1f} s"
                    raise self._failed(KafkaConnectionError(text)) from None
                if isinstance(error, OSError):
                    text = f"could not connect to {self.node}: {str(error) or type(error).__name__}"
                    raise self._failed(KafkaConnectionError(text)) from error
                if isinstance(error, KafkaError):
                    raise self._failed(error) from None
                raise
            if connection.closed:
                raise self._failed(KafkaConnectionError(f"the connection to {self.node} was lost as it came up"))
            self.connection = connection
            self.failures = 0
            self.stats.connects += 1
            self._enter(LinkState.READY)
            _logger.debug("connected to %s%s", self.node, f" for {self.purpose}" if self.purpose else "")
            self._events.connected(self.node, self.purpose)
            return connection
        finally:
            self._connecting = None
            if self.connection is None and self.state is not LinkState.CLOSED:
                self._enter(LinkState.IDLE)

    def _failed(self, error: KafkaError) -> KafkaError:
        """Notes that an attempt failed, and when the next may be."""
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

    # ---- what connections call

    def _lost(self, connection: BrokerConnection, error: KafkaConnectionError | None) -> None:
        if connection is not self.connection:
            return  # one that never came up: the attempt tells
        self.connection = None
        self.throttled_until = 0.0
        self.stats.disconnects += 1
        if self.state is not LinkState.CLOSED:
            self._enter(LinkState.IDLE)
            self._wait_before_retry()
            self.last_error = error
            _logger.debug("%s", error)
        self._events.disconnected(self.node, self.purpose, None if self._hangs_up else error)
        self._wake_turns(len(self._turns))

    def _replied(self, connection: BrokerConnection, api_key: int, message: Message) -> None:  # noqa: ARG002
        throttle_ms = getattr(message, "throttle_time_ms", 0)
        if throttle_ms > 0:
            # The broker reads nothing from us for so long, so what we sent would only look slow (KIP-219).
            self.stats.throttle.record(throttle_ms)
            self.throttled_until = max(self.throttled_until, self._loop.time() + throttle_ms / 1000)
            self._events.throttled(self.node, api_key, throttle_ms)
        if self._turns:
            self._wake_turns(1)

    def _wake_turns(self, count: int) -> None:
        while count and self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                count -= 1

    def _enter(self, state: LinkState) -> None:
        self.state = state
        self.state_since = self._loop.time()

    # ---- the end

    def disconnect(self, reason: str) -> None:
        """Drops the connection; another is made when one is needed."""
        connection = self.connection
        if connection is not None:
            self._hangs_up = True
            connection.close(reason)
            self._hangs_up = False
            self.retry_at = 0.0
            self.failures = 0

    def close_if_idle(self, idle_ms: float) -> None:
        connection = self.connection
        if connection is None or connection.in_flight or self._turns:
            return
        if (self._loop.time() - connection.last_used) * 1000 >= idle_ms:
            self.disconnect(f"it was idle for {idle_ms / 1000:.0f} s")

    async def close(self) -> None:
        if self.state is LinkState.CLOSED:
            return
        self._enter(LinkState.CLOSED)
        self._hangs_up = True
        connecting = self._connecting
        if self.connection is not None:
            self.connection.close()
        self._wake_turns(len(self._turns))
        if connecting is not None:
            connecting.cancel()
            await asyncio.wait([connecting])


def _look_at_outcome(task: "asyncio.Task[BrokerConnection]") -> None:
    """An attempt that nobody waits for any more may fail in silence."""
    if not task.cancelled():
        task.exception()
