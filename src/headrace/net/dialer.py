"""Establishes connections: name resolution, TCP, TLS. Tests replace it.

A host name may have several addresses. The dialer tries them in turn and starts with a different address at each
attempt. A dead address therefore delays only some of the attempts.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from headrace.net.broker_connection import BrokerConnection
from headrace.net.tls_channel import TlsChannel
from headrace.net.tls_transport import TlsTransport
from headrace.net.transport import PlainClientTransport

_Address = tuple[socket.AddressFamily, tuple[Any, ...]]


class Dialer(Protocol):
    """Connects a connection to an address. Calls its `connection_made` before `dial` returns.

    Raises OSError, such as ssl.SSLError.
    """

    async def dial(self, host: str, port: int, attempt: int, connection: BrokerConnection) -> None: ...


@runtime_checkable
class TlsDialer(Dialer, Protocol):
    """A dialer that can also connect with TLS."""

    def with_tls(self, tls: Callable[[], ssl.SSLContext]) -> Dialer:
        """Returns a dialer that connects with TLS. `tls` returns the current context."""


class SocketDialer:
    """Connects with sockets, optionally with TLS."""

    def __init__(
        self,
        tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ):
        """`tls`: a context, or a function that returns the current one, if certificates can be reloaded."""
        self._tls = tls
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes

    def with_tls(self, tls: Callable[[], ssl.SSLContext]) -> "SocketDialer":
        return SocketDialer(tls, self._send_buffer_bytes, self._receive_buffer_bytes)

    async def dial(self, host: str, port: int, attempt: int, connection: BrokerConnection) -> None:
        loop = asyncio.get_running_loop()
        addresses = await _resolve(loop, host, port)
        errors: list[OSError] = []
        for index in range(len(addresses)):
            family, address = addresses[(attempt + index) % len(addresses)]
            try:
                sock = await self._connect(loop, family, address)
            except OSError as error:
                errors.append(error)
                continue
            await self._hand_over(loop, sock, host, connection)
            return
        raise errors[0]

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, family: socket.AddressFamily, address: tuple[Any, ...]
    ) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            if self._receive_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            await loop.sock_connect(sock, address)
            if sock.getsockname() == sock.getpeername():
                # Without a listener on the port, the kernel may connect a socket to itself.
                raise ConnectionRefusedError(f"no process listens on port {address[1]}")
        except BaseException:
            sock.close()
            raise
        return sock

    async def _hand_over(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, host: str, connection: BrokerConnection
    ) -> None:
        context = self._tls() if callable(self._tls) else self._tls
        if context is None:
            connection.connection_made(PlainClientTransport(loop, sock, connection))
            return
        await _open_tls(loop, sock, host, context, connection)


async def _open_tls(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    host: str,
    context: ssl.SSLContext,
    connection: BrokerConnection,
) -> None:
    """Completes the handshake and connects the connection. The certificate must match the host, if the context checks
    it."""
    ready: asyncio.Future[None] = loop.create_future()

    def opened() -> None:
        connection.connection_made(transport)
        if not ready.done():
            ready.set_result(None)

    def failed(error: Exception | None) -> None:
        if not ready.done():
            ready.set_exception(error or ConnectionAbortedError("the connection was closed during the TLS handshake"))

    try:
        channel = TlsChannel(context, server_side=False, server_hostname=host)
    except ValueError as error:
        sock.close()
        raise OSError(f"invalid host name {host!r} for TLS: {error}") from None
    transport = TlsTransport(loop, sock, connection, channel, on_open=opened, on_failed=failed, delivers_rest=True)
    transport.start()
    try:
        await ready
    except asyncio.CancelledError:
        transport.abort()
        raise


async def _resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[_Address]:
    """Returns the addresses of a host. An IP address needs no resolver thread."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port) if family == socket.AF_INET else (host, port, 0, 0))]
    try:
        address_infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"invalid host name {host!r}: {error}") from None
    addresses: list[_Address] = list(dict.fromkeys((info[0], info[4]) for info in address_infos))
    if not addresses:
        raise OSError(f"host name {host!r} has no address")
    return addresses
