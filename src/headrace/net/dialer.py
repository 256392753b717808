"""Makes connections: names to addresses, TCP, TLS. What the pool asks for; tests give another one.

A name may have several addresses. They are tried in turn, beginning with another one at each attempt, so that a dead
address costs one attempt and not all of them.
"""

import asyncio
import socket
import ssl
from typing import Any, Protocol

from headrace.net.broker_connection import BrokerConnection
from headrace.net.transport import IN_MEMORY, PlainTransport, Reply

_Address = tuple[socket.AddressFamily, tuple[Any, ...]]


class Dialer(Protocol):
    """Connects to an address and gives the connection to `connection`, whose `connection_made` has been called when
    this returns. Raises OSError (ssl.SSLError is one)."""

    async def dial(self, host: str, port: int, attempt: int, connection: BrokerConnection) -> None: ...


class SocketDialer:
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
                # On a port that nobody listens on, the system may connect a socket with itself.
                raise ConnectionRefusedError(f"nobody listens on port {address[1]}")
        except BaseException:
            sock.close()
            raise
        return sock

    async def _hand_over(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, host: str, connection: BrokerConnection
    ) -> None:
        if self._ssl_context is None:
            connection.connection_made(PlainTransport(loop, sock, connection))
            return
        # asyncio owns the socket from here on, also when this fails.
        await loop.create_connection(
            lambda: _TlsProtocol(connection), sock=sock, ssl=self._ssl_context, server_hostname=host
        )


class _TlsProtocol(asyncio.BufferedProtocol):
    """Between asyncio's TLS transport and a connection, which is used to `PlainTransport`."""

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
        """It reads from the start."""

    def wake_at(self, size: int) -> None:
        """TLS has records of its own, of 16 KB."""

    def send(self, reply: Reply) -> None:
        if isinstance(reply, IN_MEMORY):
            self._transport.write(reply)
        else:
            self._transport.writelines([part for part in reply if isinstance(part, IN_MEMORY)])


async def _resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[_Address]:
    """The addresses of a host. One that is an address already needs no thread."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port) if family == socket.AF_INET else (host, port, 0, 0))]
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} cannot be the name of a host: {error}") from None
    addresses: list[_Address] = list(dict.fromkeys((each[0], each[4]) for each in found))
    if not addresses:
        raise OSError(f"the name {host} has no address")
    return addresses
