"""Establishes connections: name resolution, TCP, TLS. Tests replace it.

A host name may have several addresses. The dialer tries them in turn and starts with a different address at each
attempt. A dead address therefore delays only some of the attempts.
"""

import asyncio
import socket
import ssl
from typing import Any, Protocol

from headrace.net.broker_connection import BrokerConnection
from headrace.net.transport import IN_MEMORY, Frame, PlainClientTransport

_Address = tuple[socket.AddressFamily, tuple[Any, ...]]


class Dialer(Protocol):
    """Connects a connection to an address. Calls its `connection_made` before `dial` returns.

    Raises OSError, such as ssl.SSLError.
    """

    async def dial(self, host: str, port: int, attempt: int, connection: BrokerConnection) -> None: ...


class SocketDialer:
    """Connects with sockets, optionally with TLS."""

    def __init__(
        self,
        ssl_context: ssl.SSLContext | None = None,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ):
        self._ssl_context = ssl_context
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes

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
        if self._ssl_context is None:
            connection.connection_made(PlainClientTransport(loop, sock, connection))
            return
        # From here on asyncio owns the socket, even if this fails.
        await loop.create_connection(
            lambda: _TlsProtocol(connection), sock=sock, ssl=self._ssl_context, server_hostname=host
        )


class _TlsProtocol(asyncio.BufferedProtocol):
    """Adapts asyncio's TLS transport to a connection, which expects a `PlainClientTransport`."""

    def __init__(self, connection: BrokerConnection):
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connection.connection_made(_TlsTransport(transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.buffer_updated(nbytes)

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


class _TlsTransport:
    """asyncio's transport, with `send`."""

    def __init__(self, transport: asyncio.Transport):
        self._transport = transport
        self.abort = transport.abort

    def resume_reading(self) -> None:
        """Does nothing: asyncio's transport reads from the start."""

    def wake_at(self, size: int) -> None:
        """Does nothing: TLS delivers records of at most 16 KB."""

    def send(self, frame: Frame) -> None:
        if isinstance(frame, IN_MEMORY):
            self._transport.write(frame)
        else:
            self._transport.writelines([part for part in frame if isinstance(part, IN_MEMORY)])


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
