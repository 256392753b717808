"""Opens the listening sockets of a listener, one for each address of its host."""

import errno
import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass

from headrace.common.errors import HeadraceError
from headrace.net.limits import Limits

OPTIONS_ARE_INHERITED = sys.platform == "linux"
"""True if accepted connections have the options of their listening socket, which saves two calls for each."""
_PORT_ATTEMPTS = 20
"""How many free ports to try for port 0, until one is free on all addresses of the host."""


class BindError(HeadraceError):
    """Raised when a listener cannot be opened."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A configured listener. An empty host means all addresses of the machine, port 0 any free port."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.name}://{join_address(self.host, self.port)}"

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")


@dataclass(frozen=True, slots=True)
class BoundListener:
    """An open listener, with its configured host and its actual port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{join_address(self.host, self.port)}"


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_listener(listener: Listener, limits: Limits) -> list[socket.socket]:
    """Returns listening sockets, one for each address of the host, all on the same port. Raises BindError."""
    addresses = _resolve(listener)
    for attempt in range(_PORT_ATTEMPTS):
        try:
            return _bind_all(listener, addresses, limits)
        except OverflowError:
            raise BindError(f"cannot listen on {listener}: invalid port: expected 0 to 65535") from None
        except OSError as error:
            # With port 0, the port that was free on the first address may be in use on another address.
            retry = error.errno == errno.EADDRINUSE and listener.port == 0 and attempt + 1 < _PORT_ATTEMPTS
            if not retry:
                raise BindError(f"cannot listen on {listener}: {_reason(error)}") from error
    raise AssertionError("unreachable")


def _resolve(listener: Listener) -> list[tuple[socket.AddressFamily, str]]:
    if not listener.host:
        return [(socket.AF_INET6, "::") if socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")]
    try:
        infos = socket.getaddrinfo(listener.host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BindError(f"cannot listen on {listener}: cannot resolve {listener.host!r}: {reason}") from error
    addresses = [(family, str(address[0])) for family, _, _, _, address in infos]
    return list(dict.fromkeys(addresses))


def _bind_all(
    listener: Listener, addresses: list[tuple[socket.AddressFamily, str]], limits: Limits
) -> list[socket.socket]:
    opened: list[socket.socket] = []
    skipped: OSError | None = None  # the error of an address that this machine does not have
    port = listener.port
    try:
        for family, host in addresses:
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                skipped = error
                continue
            opened.append(sock)
            try:
                _bind(sock, host, port, limits)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                # For example ::1 for localhost on a machine without IPv6.
                skipped = error
                opened.remove(sock)
                sock.close()
                continue
            port = sock.getsockname()[1]
        if not opened and skipped is not None:
            raise skipped
    except BaseException:
        for sock in opened:
            sock.close()
        raise
    return opened


def set_connection_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _bind(sock: socket.socket, host: str, port: int, limits: Limits) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if OPTIONS_ARE_INHERITED:
        set_connection_options(sock)
    if sock.family == socket.AF_INET6:
        # As in Java, the wildcard address also accepts IPv4 connections, if the system supports it.
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
    # Set the buffer sizes before listening: TCP negotiates the window scale when a connection is established.
    if limits.send_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
    if limits.receive_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
    sock.bind((host, port))
    sock.listen(limits.backlog)


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use"
    if error.errno == errno.EACCES:
        return "permission denied (ports below 1024 require privileges)"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address"
    return os.strerror(error.errno) if error.errno is not None else str(error)
