"""Slows down new connections: connections that are accepted later, and connections that are closed instead.

    accept ── the rate of the listener or broker is exceeded ──> the listener accepts nothing for a while, then the
       │                                                         connection is served
       └───── the rate of the client's address is exceeded ────> the connection stays open and unread for a while, so
                                                                 that the client does not retry at once; then closed

Owned by the server's loop.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol


class ConnectionRates(Protocol):
    """Measures the rates of new connections."""

    def accept_delay_ms(self, listener: str) -> int:
        """Records a connection. Returns how long the listener accepts nothing."""

    def throttle_ms(self, listener: str, host: str) -> int:
        """Records a connection of an address. Returns how long it waits to be closed, or 0 if it is served."""


class Admission:
    """The delayed listeners and the throttled connections of a server."""

    def __init__(self) -> None:
        self.throttled = 0
        """The number of connections closed because the rate of their address was exceeded."""
        self._delayed: dict[str, tuple[asyncio.TimerHandle, socket.socket]] = {}
        """The listeners that accept nothing, each with the connection that it has accepted last."""
        self._closing: dict[socket.socket, asyncio.TimerHandle] = {}

    def is_delayed(self, listener: str) -> bool:
        return listener in self._delayed

    def delay(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: str,
        delay_ms: int,
        sock: socket.socket,
        resume: Callable[[], None],
    ) -> None:
        """Keeps an accepted connection for a time. Then calls `resume`."""

        def end() -> None:
            del self._delayed[listener]
            resume()

        self._delayed[listener] = loop.call_later(delay_ms / 1000, end), sock

    def close_later(self, loop: asyncio.AbstractEventLoop, throttle_ms: int, sock: socket.socket) -> None:
        """Closes a connection after its throttle time."""

        def end() -> None:
            del self._closing[sock]
            sock.close()

        self.throttled += 1
        self._closing[sock] = loop.call_later(throttle_ms / 1000, end)

    def close(self) -> None:
        """Closes the connections that wait."""
        for handle, sock in self._delayed.values():
            handle.cancel()
            sock.close()
        for sock, handle in self._closing.items():
            handle.cancel()
            sock.close()
        self._delayed.clear()
        self._closing.clear()
