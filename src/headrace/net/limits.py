"""What a socket server allows its peers, by the names of Kafka's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """The defaults are Kafka's where Kafka has the setting."""

    request_max_bytes: int = 104_857_600
    """`socket.request.max.bytes`: a frame that claims more costs its sender the connection."""
    idle_ms: int = 600_000
    """`connections.max.idle.ms`; negative: never."""
    max_connections: int = MAX_INT
    """`max.connections`"""
    max_connections_per_ip: int = MAX_INT
    """`max.connections.per.ip`"""
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """`max.connections.per.ip.overrides`, with addresses, not names."""
    backlog: int = 50
    """`socket.listen.backlog.size`"""
    send_buffer_bytes: int = 102_400
    """`socket.send.buffer.bytes`; -1: the system's own, which grows with the traffic. On loopback librdkafka then costs
    the broker half as much CPU again."""
    receive_buffer_bytes: int = -1
    """`socket.receive.buffer.bytes`; -1: the system's own. On loopback, requests of 1 MB cost two to three times the
    CPU with 102400 bytes, Kafka's default; those of 16 KB cost the same."""
    max_in_flight: int = 100
    """Requests of one connection that may wait for their replies before no more are read from it."""
    max_queued_bytes: int = 1_048_576
    """Reply bytes that a peer may leave unread before no more requests are read from it."""
    max_frames_per_turn: int = 64
    """Frames of one connection that are handled before others get their turn."""

    def per_ip(self, host: str) -> int:
        return self.per_ip_overrides.get(host, self.max_connections_per_ip)
