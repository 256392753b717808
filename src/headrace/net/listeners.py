"""Listening sockets: a listener's name and address made into sockets that are bound, or a clear error."""

import errno
import os
import socket
from contextlib import suppress
from dataclasses import dataclass

from headrace.common.errors import HeadraceError
from headrace.net.limits import Limits

_PORT_TRIES = 20


class BindError(HeadraceError):
    """A listener that cannot be opened; the message names it and the reason."""


@dataclass(frozen=True, slots=True)
class Listener:
    """What is asked for. An empty host means every address of the machine; port 0 any free port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{join_address(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class BoundListener:
    """What a listener got: its host as it was asked for, and the real port."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{join_address(self.host, self.port)}"


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_listener(listener: Listener, limits: Limits) -> list[socket.socket]:
    """Sockets that listen, one for each address that the host has, all on the same port."""
    addresses = _resolve(listener)
    for attempt in range(_PORT_TRIES):
        try:
            return _bind_all(listener, addresses, limits)
        except OverflowError:
            raise BindError(f"cannot listen on {listener}: there is no such port") from None
        except OSError as error:
            # With port 0 the first address chooses the port, and another address may have it taken.
            again = error.errno == errno.EADDRINUSE and listener.port == 0 and attempt + 1 < _PORT_TRIES
            if not again:
                raise BindError(f"cannot listen on {listener}: {_reason(error)}") from error
    raise AssertionError("unreachable")


def _resolve(listener: Listener) -> list[tuple[socket.AddressFamily, str]]:
    if not listener.host:
        return [(socket.AF_INET6, "::") if socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")]
    try:
        found = socket.getaddrinfo(listener.host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BindError(f"cannot listen on {listener}: cannot resolve {listener.host!r}: {reason}") from error
    addresses = [(family, str(address[0])) for family, _, _, _, address in found]
    return list(dict.fromkeys(addresses))


def _bind_all(
    listener: Listener, addresses: list[tuple[socket.AddressFamily, str]], limits: Limits
) -> list[socket.socket]:
    opened: list[socket.socket] = []
    missing: OSError | None = None
    port = listener.port
    try:
        for family, host in addresses:
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                missing = error
                continue
            opened.append(sock)
            try:
                _bind(sock, host, port, limits)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                # Such as ::1 of localhost on a machine without IPv6.
                missing = error
                opened.remove(sock)
                sock.close()
                continue
            port = sock.getsockname()[1]
        if not opened and missing is not None:
            raise missing
    except BaseException:
        for sock in opened:
            sock.close()
        raise
    return opened


def _bind(sock: socket.socket, host: str, port: int, limits: Limits) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        # As Java does: the wildcard takes IPv4 as well, if the system can.
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
    # Set here, before connections are made, since the window's scale is agreed when one is; they inherit it.
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
        return "permission denied (ports below 1024 need a privilege)"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address"
    return os.strerror(error.errno) if error.errno is not None else str(error)
