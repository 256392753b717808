"""Network partitions between the brokers of an embedded cluster, and between a broker and the store.

- `Links` has the blocked directions. Tests change it from their thread.
- `LinkDialer` is the dialer of one broker. It applies the blocked directions to the broker's connections to others.

A blocked direction is a black hole: bytes are neither delivered nor refused. As with TCP, bytes that a node has sent
meanwhile arrive after the partition has healed, if the connection still exists then. A new connection needs both
directions. The dialing side applies both: it holds back what it sends, and does not read what it receives. Connections
of clients are not affected.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable
from typing import Any

from headrace.common.errors import HeadraceError
from headrace.net.broker_connection import BrokerConnection
from headrace.net.dialer import Dialer, SocketDialer, TlsDialer
from headrace.net.transport import Frame, frame_size

STORE = "store"

LinkNode = int | str
"""A broker's id, or STORE."""


class Links:
    """The blocked directions between nodes. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._blocked: frozenset[tuple[LinkNode, LinkNode]] = frozenset()
        self._listeners: list[Callable[[], None]] = []
        self._guard = threading.Lock()

    def is_blocked(self, sender: LinkNode, receiver: LinkNode) -> bool:
        return (sender, receiver) in self._blocked

    @property
    def blocked(self) -> frozenset[tuple[LinkNode, LinkNode]]:
        """The pairs of sender and receiver."""
        return self._blocked

    def block(self, sender: LinkNode, receiver: LinkNode) -> None:
        """Blocks one direction."""
        if sender == receiver:
            raise HeadraceError(f"A partition needs two different nodes, not {sender!r} twice")
        with self._guard:
            self._blocked |= {(sender, receiver)}
        self._notify()

    def heal(self) -> None:
        """Opens all directions."""
        with self._guard:
            self._blocked = frozenset()
        self._notify()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Calls the listener after each change, on the thread that made the change."""
        with self._guard:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        with self._guard:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _notify(self) -> None:
        with self._guard:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()


class LinkDialer:
    """Connects one broker with the others. `node_at` returns the node at a port, or None.

    The broker's event loop owns it: the owner of the links calls `links_changed` there after each change.
    """

    def __init__(
        self, node: LinkNode, links: Links, node_at: Callable[[int], LinkNode | None], dialer: Dialer | None = None
    ):
        self._node = node
        self._links = links
        self._node_at = node_at
        self._dialer = dialer or SocketDialer()
        self._connections: set[LinkedConnection] = set()
        self._changed = asyncio.Event()

    async def dial(self, host: str, port: int, attempt: int, connection: BrokerConnection) -> None:
        await self.dial_with(self._dialer, host, port, attempt, connection)

    def with_tls(self, tls: Callable[[], ssl.SSLContext]) -> "Dialer":
        if not isinstance(self._dialer, TlsDialer):
            raise HeadraceError("this dialer cannot connect with TLS")
        return _SecuredLinkDialer(self, self._dialer.with_tls(tls))

    async def dial_with(self, dialer: Dialer, host: str, port: int, attempt: int, connection: BrokerConnection) -> None:
        """Connects with another dialer, through the same links."""
        peer = self._node_at(port)
        if peer is None:
            await dialer.dial(host, port, attempt, connection)
            return
        while self._links.is_blocked(self._node, peer) or self._links.is_blocked(peer, self._node):
            changed = self._changed
            await changed.wait()
        linked = LinkedConnection(self, connection, peer)
        self._connections.add(linked)
        try:
            await dialer.dial(host, port, attempt, linked)  # type: ignore[arg-type]
        except BaseException:
            self._connections.discard(linked)
            raise

    def links_changed(self) -> None:
        """Applies the current links to all connections."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for connection in tuple(self._connections):
            connection.update()

    def close(self) -> None:
        """Closes all sockets: a process that ends closes its sockets even during a partition."""
        for connection in tuple(self._connections):
            connection.close_socket()

    def can_send(self, peer: LinkNode) -> bool:
        return not self._links.is_blocked(self._node, peer)

    def can_receive(self, peer: LinkNode) -> bool:
        return not self._links.is_blocked(peer, self._node)

    def forget(self, connection: "LinkedConnection") -> None:
        self._connections.discard(connection)


class _SecuredLinkDialer:
    """Connects with TLS, through the links of another dialer."""

    def __init__(self, links: LinkDialer, dialer: Dialer):
        self._links = links
        self._dialer = dialer

    async def dial(self, host: str, port: int, attempt: int, connection: BrokerConnection) -> None:
        await self._links.dial_with(self._dialer, host, port, attempt, connection)


class LinkedConnection:
    """Stands between a connection and its transport: to each it has the interface of the other."""

    def __init__(self, dialer: LinkDialer, connection: BrokerConnection, peer: LinkNode):
        self._dialer = dialer
        self._connection = connection
        self._peer = peer
        self._transport: Any = None
        self._held: Frame | None = None
        """The frame that waits for the link. The connection sends the next one after `resume_writing`."""
        self._transport_is_full = False
        self._aborted = False

    # ---- called by the transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connection.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.buffer_updated(nbytes)

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._transport_is_full = True
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._transport_is_full = False
        if self._held is None:
            self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._dialer.forget(self)
        self._connection.connection_lost(error)

    # ---- called by the connection

    def resume_reading(self) -> None:
        if self._dialer.can_receive(self._peer):
            self._transport.resume_reading()

    def wake_at(self, size: int) -> None:
        self._transport.wake_at(size)

    def send(self, frame: Frame) -> None:
        if self._dialer.can_send(self._peer):
            self._transport.send(frame)
        elif frame_size(frame):
            self._held = frame
            self._connection.pause_writing()

    def abort(self) -> None:
        """Closes the socket; during a partition only after it, since the peer cannot learn of it."""
        self._aborted = True
        self._held = None
        self.update()

    # ---- called by the dialer

    def update(self) -> None:
        if self._transport is None:
            return
        can_send = self._dialer.can_send(self._peer)
        if self._aborted:
            if can_send:
                self.close_socket()
            else:
                self._transport.pause_reading()
            return
        if self._dialer.can_receive(self._peer):
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
        if can_send and self._held is not None:
            frame, self._held = self._held, None
            self._transport.send(frame)
            if not self._transport_is_full:
                self._connection.resume_writing()

    def close_socket(self) -> None:
        self._dialer.forget(self)
        if self._transport is not None:
            self._transport.abort()
