"""The brokers that a client knows, and the connections to them.

    pool = BrokerPool([("localhost", 9092)], NetConfig())
    response = await pool.send_to_any(MetadataRequest(topics=None))
    pool.set_nodes(nodes_of(response))
    response = await pool.send(1, FetchRequest(...))

- One loop owns the pool: no other thread may call its methods.
- Brokers are identified by node id. Bootstrap addresses, whose node ids are unknown, have the ids -1, -2, and so on.
- Once the client knows a broker, the broker takes over the connection to its bootstrap address.
- A purpose (any text) separates requests that would delay each other. Responses arrive in order, so a Heartbeat behind
  a JoinGroup that waits for a rebalance needs a separate connection.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from headrace.common.ids import Random, make_random
from headrace.net.broker_connection import ResponseFuture
from headrace.net.broker_link import BrokerLink, LinkState, NetConfig, NoEvents, PoolEvents
from headrace.net.dialer import Dialer, SocketDialer
from headrace.net.errors import KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError
from headrace.net.nodes import Node
from headrace.net.responses import ResponseMemory
from headrace.protocol import Message

__all__ = ["BrokerPool", "NetConfig", "NoEvents", "Node", "PoolEvents"]

_logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 30.0
_REAUTHENTICATION_MS = 10.0
"""How often to look if a re-authentication is done, which takes a few ms."""
_SLOW_SECONDS = 2.0
"""A broker whose response has been missing for this long is avoided if there is another broker."""


class BrokerPool:
    """The links to all known brokers, by node id and purpose."""

    def __init__(
        self,
        bootstrap: Iterable[tuple[str, int]],
        config: NetConfig,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        dialer: Dialer | None = None,
        random: Random | None = None,
        events: PoolEvents | None = None,
    ):
        self.config = config
        self._loop = loop or asyncio.get_running_loop()
        self._dialer = dialer or SocketDialer()
        self._memory = ResponseMemory()
        self._random = random or make_random()
        self._events = events or NoEvents()
        self._bootstrap = {-1 - index: Node(-1 - index, *address) for index, address in enumerate(bootstrap)}
        self._nodes: dict[int, Node] = {}
        self._links: dict[tuple[int, str], BrokerLink] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self.closed = False

    # ---- nodes

    @property
    def nodes(self) -> Mapping[int, Node]:
        """The brokers from metadata."""
        return MappingProxyType(self._nodes)

    @property
    def bootstrap_nodes(self) -> Mapping[int, Node]:
        return MappingProxyType(self._bootstrap)

    def node(self, node_id: int) -> Node | None:
        return self._nodes.get(node_id) or self._bootstrap.get(node_id)

    def links(self) -> Iterable[BrokerLink]:
        """Returns all links, for statistics."""
        return tuple(self._links.values())

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Sets the brokers from metadata. Closes the connections to brokers that were removed or have moved."""
        self._replace_nodes({node.id: node for node in nodes})
        if self._nodes:
            self._retire_bootstrap()

    def _replace_nodes(self, new_nodes: dict[int, Node]) -> None:
        for link_id, link in list(self._links.items()):
            node_id = link_id[0]
            if node_id < 0:
                continue
            node = new_nodes.get(node_id)
            if node is None:
                self._drop(link_id, "metadata no longer contains this broker")
            elif (node.host, node.port) != (link.node.host, link.node.port):
                self._drop(link_id, f"the broker moved to {node}")
            else:
                link.node = node
        self._nodes = new_nodes

    def add_node(self, node: Node) -> None:
        """Adds a broker that another response has named, such as a coordinator or a new leader."""
        if self._nodes.get(node.id) != node:
            self._replace_nodes({**self._nodes, node.id: node})

    def rebootstrap(self) -> None:
        """Forgets all brokers: the next request goes to the bootstrap addresses (KIP-1102)."""
        for link_id in [link_id for link_id in self._links if link_id[0] >= 0]:
            self._drop(link_id, "the client rebootstraps")
        self._nodes = {}

    def _retire_bootstrap(self) -> None:
        """Hands connections to bootstrap addresses over to the brokers at these addresses.

        Closes the other bootstrap connections: idle ones now, busy ones when they become idle.
        """
        by_address = {(node.host, node.port): node for node in self._nodes.values()}
        for link_id, link in list(self._links.items()):
            if link_id[0] >= 0 or link.connection is None:
                continue
            node = by_address.get((link.node.host, link.node.port))
            if node is not None and (node.id, link_id[1]) not in self._links:
                del self._links[link_id]
                link.node = link.connection.node = node
                self._links[node.id, link_id[1]] = link
            elif not link.load:
                self._drop(link_id, "the brokers are now known")

    # ---- requests

    async def send(
        self,
        node_id: int,
        request: Message,
        *,
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
        purpose: str = "",
        expect_response: bool = True,
    ) -> Any:
        """Sends a request in the highest common version and returns the response; connects if necessary.

        With `expect_response=False` (Produce with acks=0) returns None once the request is written. Raises:

        - KafkaConnectionError: could not connect, or the connection was lost
        - RequestTimedOutError: no response within `timeout_ms` after the request was sent
        - UnsupportedVersionError: no common version within bounds
        """
        link = self._link(node_id, purpose)
        connection = await link.ready()
        version = connection.version_for(type(request).__api_key__, min_version, max_version)
        timeout = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        return await connection.send(request, version, timeout, expect_response)

    def send_now(
        self,
        node_id: int,
        request: Message,
        *,
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
        purpose: str = "",
        expect_response: bool = True,
    ) -> ResponseFuture:
        """Sends a request within this call if the broker `is_ready`. Raises NodeNotReadyError otherwise."""
        link = self._links.get((node_id, purpose))
        if link is None or link.connection is None:
            raise NodeNotReadyError(f"no connection to broker {node_id}")
        version = link.connection.version_for(type(request).__api_key__, min_version, max_version)
        timeout = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        return link.send_now(request, version, timeout, expect_response)

    async def send_to_any(
        self,
        request: Message,
        *,
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
        purpose: str = "",
    ) -> Any:
        """Sends a request to the least loaded broker and returns the response."""
        return await self.send(
            self.least_loaded(purpose),
            request,
            timeout_ms=timeout_ms,
            min_version=min_version,
            max_version=max_version,
            purpose=purpose,
        )

    async def connect(self, node_id: int, purpose: str = "") -> None:
        """Waits for an established connection. Raises KafkaConnectionError."""
        await self._link(node_id, purpose).connect()

    def start_connecting(self, node_id: int, purpose: str = "") -> None:
        """Starts connecting without waiting. `PoolEvents` reports the outcome."""
        link = self._link(node_id, purpose)
        if link.connection is None:
            link.start_connecting()

    def disconnect(self, node_id: int, purpose: str = "", reason: str = "this client closed it") -> None:
        """Closes the connection, if there is one; requests in flight fail."""
        link = self._links.get((node_id, purpose))
        if link is not None:
            link.disconnect(reason)

    # ---- state of a broker

    def is_ready(self, node_id: int, purpose: str = "") -> bool:
        """Returns True if `send_now` can send: connected, not throttled, and below the limit of requests in flight."""
        link = self._links.get((node_id, purpose))
        return link is not None and link.is_ready

    def is_backing_off(self, node_id: int, purpose: str = "") -> bool:
        """Returns True if the next attempt to connect has to wait after a failure."""
        link = self._links.get((node_id, purpose))
        return link is not None and link.is_backing_off

    def ready_in_ms(self, node_id: int, purpose: str = "") -> float:
        """Returns the wait for back-off or throttling. 0: a request or an attempt to connect is possible now."""
        link = self._links.get((node_id, purpose))
        if link is None:
            return 0.0
        if link.is_reauthenticating:
            return _REAUTHENTICATION_MS
        until = link.throttled_until if link.connection is not None else link.retry_at
        return max(0.0, (until - self._loop.time()) * 1000)

    def in_flight(self, node_id: int, purpose: str = "") -> int:
        link = self._links.get((node_id, purpose))
        return 0 if link is None else link.in_flight

    def version(
        self, node_id: int, api_key: int, *, min_version: int | None = None, max_version: int | None = None
    ) -> int | None:
        """Returns the version of an API used with this broker; None if it is not connected.

        Raises UnsupportedVersionError if both sides have no common version within bounds.
        """
        for link in self._links.values():
            if link.node.id == node_id and link.connection is not None:
                return link.connection.version_for(api_key, min_version, max_version)
        return None

    def features(self, node_id: int) -> dict[str, int]:
        """Returns the finalized features that this broker reported; empty if it is not connected."""
        for link in self._links.values():
            if link.node.id == node_id and link.connection is not None:
                return dict(link.connection.features)
        return {}

    def least_loaded(self, purpose: str = "") -> int:
        """Returns the id of the best broker for a request that any broker can handle.

        In order of preference:

        - the connected broker with the fewest requests in flight
        - a broker to which the client is connecting
        - a broker without failed attempts to connect
        - a broker with failed attempts
        - a broker whose response has been missing for long
        - a broker that must wait before the next attempt to connect

        Ties are broken at random. Bootstrap addresses are used if no broker is known or all of them have problems.
        """
        ranked_nodes = [self._rank(node_id, purpose) for node_id in self._nodes]
        best_rank = min(ranked_nodes, default=None)
        if best_rank is None or (best_rank[0] >= _FAILED and self.config.rebootstrap):
            addresses = {(node.host, node.port) for node in self._nodes.values()}
            bootstrap_ids = [node.id for node in self._bootstrap.values() if (node.host, node.port) not in addresses]
            ranked_bootstrap = [self._rank(node_id, purpose) for node_id in bootstrap_ids]
            best_rank = min([*ranked_bootstrap, *ranked_nodes], default=None)
        if best_rank is None:
            raise KafkaConnectionError("no broker is known and no bootstrap server is configured")
        return best_rank[-1]

    def _rank(self, node_id: int, purpose: str) -> tuple[int, float, float, int]:
        link = self._links.get((node_id, purpose))
        chance = self._random.random()
        if link is None:
            return (_FRESH, 0, chance, node_id)
        if link.connection is not None:
            if link.connection.waited_seconds > _SLOW_SECONDS:
                return (_SLOW, link.load, chance, node_id)
            return (_USABLE if link.is_ready else _BUSY, link.load, chance, node_id)
        if link.state is LinkState.CONNECTING:
            return (_DIALLED, link.failures, chance, node_id)
        if link.is_backing_off:
            return (_BACKING_OFF, link.retry_at, chance, node_id)
        return (_FAILED if link.failures else _FRESH, link.failures, chance, node_id)

    # ---- links

    def _link(self, node_id: int, purpose: str) -> BrokerLink:
        link = self._links.get((node_id, purpose))
        if link is None:
            if self.closed:
                raise KafkaConnectionError("the client is closed")
            node = self.node(node_id)
            if node is None:
                raise UnknownBrokerIdError(f"no broker with id {node_id} is known")
            link = BrokerLink(
                self._loop, node, purpose, self.config, self._dialer, self._memory, self._random, self._events
            )
            self._links[node_id, purpose] = link
            if self._sweep_timer is None:
                self._sweep_timer = self._loop.call_later(self._sweep_seconds, self._sweep)
        return link

    def _drop(self, link_id: tuple[int, str], reason: str) -> None:
        link = self._links.pop(link_id)
        link.disconnect(reason)
        task = self._loop.create_task(link.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    @property
    def _sweep_seconds(self) -> float:
        idle_ms = self.config.max_idle_ms
        return _SWEEP_SECONDS if idle_ms < 0 else min(_SWEEP_SECONDS, max(idle_ms / 2000, 0.01))

    def _sweep(self) -> None:
        """Closes idle connections and frees their memory."""
        for link in self._links.values():
            if self.config.max_idle_ms >= 0:
                link.close_if_idle(self.config.max_idle_ms)
        self._memory.trim()
        self._sweep_timer = self._loop.call_later(self._sweep_seconds, self._sweep)

    async def close(self) -> None:
        """Closes all connections; requests in flight fail."""
        self.closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        links, self._links = list(self._links.values()), {}
        for link in links:
            await link.close()
        if self._closing:
            await asyncio.wait(self._closing)


_USABLE, _BUSY, _DIALLED, _FRESH, _FAILED, _SLOW, _BACKING_OFF = range(7)
