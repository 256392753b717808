"""A virtual network: connections between nodes in memory, with latency, partitions, breaks and hangs.

- A connection delivers in order, in each direction. Latency is random per message, within the limits of its link.
- `block(a, b)` drops everything that a sends to b, as a one-way partition. As with TCP, the bytes stay in the sender's
  kernel and arrive after `heal`, unless a side has given up meanwhile. A new connection needs both directions.
- A killed process closes its connections: its peers see the end of the stream. After a power loss they see nothing,
  until the machine runs again.

`VirtualServer` and `VirtualDialer` implement the broker's listener and the dialer of brokers and clients. Everything
that a node receives runs in the node's context.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.common.clock import Clock
from headrace.common.ids import Random
from headrace.common.metrics import Metrics
from headrace.net.broker_connection import BrokerConnection
from headrace.net.connection import FrameHandler
from headrace.net.limits import Limits
from headrace.net.listeners import BoundListener, Listener
from headrace.net.server import SocketServer
from headrace.net.transport import IN_MEMORY, Frame, TransportUser
from headrace.testing.simulation.loop import Node, VirtualLoop

FIRST_PORT = 9092
_END = object()
"""The end of the stream, in a pipe."""


class Pipe:
    """One direction of a connection: delivers items in order to a function of the receiving node."""

    def __init__(self, network: "Network", source: Node, target: Node, receive: Callable[[Any], object]):
        self._network = network
        self.source = source
        self.target = target
        self._receive = receive
        self._items: deque[Any] = deque()
        self._is_moving = False
        self.closed = False

    def send(self, item: Any) -> None:
        if self.closed:
            return
        self._items.append(item)
        self.move()

    def move(self) -> None:
        """Sends the next item, unless one is under way or the link is down."""
        network = self._network
        if self._is_moving or self.closed or not self._items:
            return
        if network.is_blocked(self.source, self.target):
            network.stalled[self] = None
            return
        self._is_moving = True
        delay = network.latency(self.source.name, self.target.name)
        network.loop.call_later(delay, self._arrive, len(self._items), context=network.context)

    def _arrive(self, count: int) -> None:
        """Delivers what was sent before the departure of the first item, so that a busy pipe needs few timers."""
        self._is_moving = False
        if self.closed:
            return
        if self._network.is_blocked(self.source, self.target):
            self._network.stalled[self] = None
            return
        items = [self._items.popleft() for _ in range(count)]
        if not self.target.dead:
            for item in items:
                self.target.call(self._deliver, item)
        self.move()

    def _deliver(self, item: Any) -> None:
        if not self.closed:
            self._receive(item)

    def close(self) -> None:
        """Drops everything that has not arrived."""
        self.closed = True
        self._items.clear()


class Network:
    """The links between all nodes, by name. Unknown nodes have no faults."""

    def __init__(self, loop: VirtualLoop, random: Random, context: Any):
        """`context` is the context of the network's own callbacks, which belong to no node."""
        self.loop = loop
        self.random = random
        self.context = context
        self.typical_latency = 0.001
        self.slow_links: dict[tuple[str, str], float] = {}
        """The typical latency of links that are slow now."""
        self.stalled: dict[Pipe, None] = {}
        self.connections: dict[VirtualConnection, None] = {}
        self.machines_off: dict[str, None] = {}
        """Machines without power: connecting to them does not even fail."""
        self._blocked: dict[tuple[str, str], None] = {}
        self._listeners: dict[tuple[str, int], VirtualServer] = {}
        self._next_port = FIRST_PORT

    # ---- links

    def latency(self, source: str, target: str) -> float:
        """Returns the seconds that the next message takes."""
        if source == target:
            return 0.00005
        typical = self.slow_links.get((source, target), self.typical_latency)
        return typical * (0.3 + self.random.random() * 1.4)

    def is_blocked(self, source: Node, target: Node) -> bool:
        return bool(self._blocked) and (source.name, target.name) in self._blocked

    def block(self, source: str, target: str) -> None:
        """Drops what `source` sends to `target`, until `heal`."""
        self._blocked[source, target] = None

    def partition(self, side: str, *others: str) -> None:
        """Cuts both directions between a node and others."""
        for other in others:
            self.block(side, other)
            self.block(other, side)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Ends one partition, or all of them. What was sent meanwhile arrives."""
        if source is None or target is None:
            self._blocked.clear()
            self.slow_links.clear()
        else:
            self._blocked.pop((source, target), None)
        stalled, self.stalled = self.stalled, {}
        for pipe in stalled:
            pipe.move()

    def break_connections(self, first: str, second: str) -> None:
        """Resets all connections between two nodes."""
        for connection in list(self.connections):
            if {connection.client.name, connection.server.name} == {first, second}:
                connection.reset()

    # ---- nodes

    def node_killed(self, node: Node, *, silently: bool) -> None:
        """Ends the connections and listeners of a killed process. After a power loss, peers are not told."""
        self._listeners = {address: server for address, server in self._listeners.items() if server.node is not node}
        if silently:
            self.machines_off[node.name] = None
        for connection in list(self.connections):
            if node in (connection.client, connection.server):
                connection.node_killed(node, silently)

    def node_restarted(self, name: str) -> None:
        """Resets the connections of earlier processes: the machine does not know them any more."""
        self.machines_off.pop(name, None)
        for connection in list(self.connections):
            if any(side.name == name and side.dead for side in (connection.client, connection.server)):
                connection.reset()

    # ---- listening and dialling

    def listen(self, server: "VirtualServer", host: str, port: int) -> int:
        """Returns the port."""
        if not port:
            port, self._next_port = self._next_port, self._next_port + 1
        self._listeners[host, port] = server
        return port

    def close_listener(self, server: "VirtualServer") -> None:
        self._listeners = {address: found for address, found in self._listeners.items() if found is not server}

    async def dial(self, client: Node, host: str, port: int, protocol: TransportUser) -> "VirtualTransport":
        """Connects. Waits forever while the link is down or the machine is off."""
        await asyncio.sleep(2 * self.latency(client.name, host))
        while self._is_unreachable(client.name, host):
            await asyncio.sleep(0.5)
        server = self._listeners.get((host, port))
        if server is None:
            raise ConnectionRefusedError(f"no process listens on {host}:{port}")
        connection = VirtualConnection(self, client, server, port, protocol)
        self.connections[connection] = None
        server.node.call(server.connected, connection)
        return connection.client_side

    def _is_unreachable(self, client: str, host: str) -> bool:
        return (client, host) in self._blocked or (host, client) in self._blocked or host in self.machines_off


class VirtualConnection:
    """A connection: two transports and a pipe in each direction."""

    def __init__(self, network: Network, client: Node, server: "VirtualServer", port: int, protocol: TransportUser):
        self._network = network
        self.client = client
        self.server = server.node
        self.port = port
        self.client_side = VirtualTransport(self, protocol)
        self.server_side = VirtualTransport(self, None)
        to_server = Pipe(network, client, self.server, self.server_side.received)
        to_client = Pipe(network, self.server, client, self.client_side.received)
        self.client_side.pipe, self.server_side.pipe = to_server, to_client

    @property
    def sides(self) -> "tuple[tuple[Node, VirtualTransport], tuple[Node, VirtualTransport]]":
        return (self.client, self.client_side), (self.server, self.server_side)

    def reset(self) -> None:
        """Breaks the connection: both sides see an error at once."""
        self.forget()
        for node, side in self.sides:
            side.pipe.close()
            if not node.dead:
                node.call(side.broken)

    def node_killed(self, node: Node, silently: bool) -> None:
        for owner, side in self.sides:
            if owner is node and not silently:
                side.pipe.send(_END)  # what it sent before still arrives

    def side_closed(self) -> None:
        if self.client_side.is_closing() and self.server_side.is_closing():
            self.forget()

    def forget(self) -> None:
        self._network.connections.pop(self, None)


class VirtualTransport:
    """One side of a connection, with the interface of `net.transport.PlainTransport`."""

    pipe: Pipe
    pending_bytes = 0
    """Always 0: the network takes everything."""

    def __init__(self, connection: VirtualConnection, protocol: TransportUser | None):
        self._connection = connection
        self._protocol = protocol
        self._loop = connection._network.loop
        self._reading = False
        self._closing = False
        self._lost = False
        self._ended = False
        self._received = bytearray()

    def attach(self, protocol: TransportUser) -> None:
        self._protocol = protocol

    # ---- sending

    def send(self, frame: Frame) -> None:
        if self._closing:
            return
        if isinstance(frame, IN_MEMORY):
            self.pipe.send(bytes(frame))
        else:
            self.pipe.send(b"".join(bytes(part) if isinstance(part, IN_MEMORY) else part.read() for part in frame))

    # ---- receiving

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            if self._received or self._ended:
                self._loop.call_soon(self._read)

    def pause_reading(self) -> None:
        self._reading = False

    def is_reading(self) -> bool:
        return self._reading

    def wake_at(self, size: int) -> None:
        """Does nothing: bytes are delivered as they arrive."""

    def received(self, item: Any) -> None:
        """Called by the pipe, as the receiving node."""
        if item is _END:
            self._ended = True
        else:
            self._received += item
        self._read()

    def _read(self) -> None:
        protocol = self._protocol
        while self._reading and self._received and protocol is not None:
            buffer = protocol.get_buffer(-1)
            size = min(len(buffer), len(self._received))
            buffer[:size] = self._received[:size]
            del self._received[:size]
            protocol.buffer_updated(size)
        if self._reading and self._ended and not self._received and protocol is not None:
            self._reading = False
            if not protocol.eof_received():
                self.close()

    # ---- closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002
        return default

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Sends the end of the stream after everything else."""
        if not self._closing:
            self.pipe.send(_END)
            self._end(None)

    def abort(self) -> None:
        self.close()

    def broken(self) -> None:
        self._end(ConnectionResetError("connection reset by peer"))

    def _end(self, error: Exception | None) -> None:
        self._closing = True
        self._reading = False
        if not self._lost:
            self._lost = True
            self._connection.side_closed()
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, error)


class VirtualDialer:
    """Connects a node to listeners of other nodes. Implements `net.dialer.Dialer`."""

    def __init__(self, network: Network, node: Node):
        self._network = network
        self._node = node

    async def dial(self, host: str, port: int, attempt: int, connection: BrokerConnection) -> None:  # noqa: ARG002
        connection.connection_made(await self._network.dial(self._node, host, port, connection))


class VirtualServer(SocketServer):
    """A server without sockets: the network hands connections over."""

    def __init__(
        self,
        network: Network,
        node: Node,
        listeners: list[Listener],
        handler: FrameHandler,
        limits: Limits,
        clock: Clock,
        metrics: Metrics | None = None,
    ):
        super().__init__(listeners, handler, limits, clock, metrics)
        self.node = node
        self._network = network
        self._closed = False
        self._names: dict[int, str] = {}
        self._backlog: list[VirtualConnection] = []

    def _open_listeners(self) -> None:
        for listener in self._listeners:
            port = self._network.listen(self, self.node.name, listener.port)
            self._names[port] = listener.name
            self.endpoints.append(BoundListener(listener.name, self.node.name, port))

    def connected(self, connection: VirtualConnection) -> None:
        """Called by the network: accepts the connection now, or at the end of a pause."""
        self._backlog.append(connection)
        self._accept_backlog()

    def _start_accepting(self) -> None:
        if not self._paused and not self._closed:
            self._accepting = True
            self._accept_backlog()

    def _stop_listening(self) -> None:
        self._accepting = False

    def stop_accepting(self) -> None:
        self._accepting = False
        self._closed = True
        self._network.close_listener(self)
        for connection in self._backlog:
            connection.reset()
        self._backlog.clear()

    def _accept_backlog(self) -> None:
        while self._accepting and self._backlog:
            connection = self._backlog.pop(0)
            if connection.server_side.is_closing():
                continue
            accepted = self._add_connection((connection.client.name, connection.port), self._names[connection.port])
            connection.server_side.attach(accepted)
            accepted.connection_made(connection.server_side)
