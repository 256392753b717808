"""The limits of a socket server, with the names of Kafka's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections. The defaults are Kafka's where Kafka has the key."""

    request_max_bytes: int = 104_857_600
    """`socket.request.max.bytes`: a larger frame closes the connection."""
    queued_max_bytes: int = 268_435_456
    """`queued.max.request.bytes`: the memory of all requests that are being received; -1: unlimited, Kafka's default.

    With 256 MB, two requests of the largest size and two hundred of the usual large size are received at a time."""
    idle_ms: int = 600_000
    """`connections.max.idle.ms`; negative: never."""
    max_connections: int = MAX_INT
    """`max.connections`"""
    listener_max_connections: Mapping[str, int] = field(default_factory=dict)
    """`listener.name.<listener>.max.connections`, by the names of listeners."""
    protected_listener: str | None = None
    """The inter-broker listener: it accepts connections also above `max_connections`, and another one is closed."""
    max_connections_per_ip: int = MAX_INT
    """`max.connections.per.ip`"""
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """`max.connections.per.ip.overrides`, with IP addresses, not host names."""
    backlog: int = 4096
    """`socket.listen.backlog.size`

    Kafka's default is 50. The client's system retries a connection that does not fit after 1, 3, 7, 15 seconds."""
    send_buffer_bytes: int = 204_800
    """`socket.send.buffer.bytes`; -1: the operating system's default, which grows with the traffic.

    Kafka's default is 102400. Measured with one consumer on loopback: 200 KB was about as fast as 100 KB or faster,
    400 KB a fifth slower with normal scheduling but faster with real-time priority, 1 MB never faster."""
    receive_buffer_bytes: int = -1
    """`socket.receive.buffer.bytes`; -1: the operating system's default.

    Kafka's default is 102400. On loopback, requests of 1 MB then cost two to three times the CPU. Requests of 16 KB
    cost the same."""
    max_in_flight: int = 100
    """The number of requests without a response at which reading from a connection pauses."""
    max_queued_bytes: int = 1_048_576
    """The number of unread response bytes at which reading from a connection pauses."""
    max_frames_per_turn: int = 64
    """The number of frames of one connection that are handled before others get their turn."""

    def per_ip(self, host: str) -> int:
        """Returns the limit of connections from an IP address."""
        return self.per_ip_overrides.get(host, self.max_connections_per_ip)
