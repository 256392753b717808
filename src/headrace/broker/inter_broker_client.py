"""Requests of a broker to other brokers.

- The addresses are those of one listener, usually the inter-broker listener. `set_brokers` sets them.
- A `purpose` has its own connection to each broker. Responses arrive in the order of the requests, so a request
  that may wait long, such as a Fetch, must not share the connection of others.
- The event loop owns the client.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from headrace.cluster.commands import BrokerInfo
from headrace.common.ids import Random
from headrace.net.broker_connection import BrokerConnection
from headrace.net.broker_pool import BrokerPool, NetConfig, Node
from headrace.net.dialer import Dialer
from headrace.net.errors import KafkaConnectionError
from headrace.protocol import Message


class InterBrokerClient:
    """The connections of one broker to all others. They are opened on demand, and closed by `close`."""

    def __init__(
        self,
        node_id: int,
        listener: str,
        *,
        dialer: Dialer | None = None,
        random: Random | None = None,
        request_timeout_ms: float = 30_000,
        setup_timeout_ms: float = 10_000,
        setup_timeout_max_ms: float = 30_000,
        reconnect_backoff_ms: float = 50,
        reconnect_backoff_max_ms: float = 1000,
        authenticate: Callable[[BrokerConnection], Awaitable[float | None]] | None = None,
    ):
        """`authenticate`: for a listener with SASL (`NetConfig.authenticate`)."""
        self.listener = listener
        self._dialer = dialer
        self._random = random
        self._config = NetConfig(
            client_id=f"broker-{node_id}",
            request_timeout_ms=request_timeout_ms,
            setup_timeout_ms=setup_timeout_ms,
            setup_timeout_max_ms=setup_timeout_max_ms,
            reconnect_backoff_ms=reconnect_backoff_ms,
            reconnect_backoff_max_ms=reconnect_backoff_max_ms,
            rebootstrap=False,
            tls_errors_are_final=False,
            authenticate=authenticate,
        )
        self._nodes: dict[int, Node] = {}
        self._pool: BrokerPool | None = None
        self._closed = False

    @property
    def brokers(self) -> frozenset[int]:
        """The ids of the brokers that can be reached."""
        return frozenset(self._nodes)

    def set_brokers(self, brokers: Iterable[BrokerInfo]) -> None:
        """Sets the live brokers. Closes connections to brokers that are gone or have another address. Brokers without
        the listener cannot be reached."""
        self._nodes = {
            broker.id: Node(broker.id, endpoint.host, endpoint.port, broker.rack)
            for broker in brokers
            if (endpoint := broker.endpoint(self.listener)) is not None
        }
        if self._pool is not None:
            self._pool.set_nodes(self._nodes.values())

    async def send(
        self,
        broker_id: int,
        request: Message,
        *,
        purpose: str = "",
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Any:
        """Sends a request in the highest common version within bounds and returns the response. Connects if necessary,
        after a back-off if the last attempt failed.

        Raises KafkaConnectionError (also for an unknown broker; `sent` tells if the request may have arrived),
        RequestTimedOutError and UnsupportedVersionError.
        """
        return await self._connections().send(
            broker_id,
            request,
            purpose=purpose,
            timeout_ms=timeout_ms,
            min_version=min_version,
            max_version=max_version,
        )

    def disconnect(self, broker_id: int, purpose: str = "", reason: str = "this broker closed it") -> None:
        """Closes a connection, if there is one. Requests in flight fail with KafkaConnectionError."""
        if self._pool is not None:
            self._pool.disconnect(broker_id, purpose, reason)

    async def close(self) -> None:
        """Closes all connections. Requests in flight fail with KafkaConnectionError, as do later ones."""
        self._closed = True
        if self._pool is not None:
            await self._pool.close()

    def _connections(self) -> BrokerPool:
        if self._closed:
            raise KafkaConnectionError("this broker has closed its connections to other brokers")
        if self._pool is None:
            # Not in the constructor: the pool belongs to the running loop.
            self._pool = BrokerPool((), self._config, dialer=self._dialer, random=self._random)
            self._pool.set_nodes(self._nodes.values())
        return self._pool
