"""Many connections at once, and connections that send a part of a large request."""

import resource
import select
import socket
import struct
import time

from bench.broker_sides import Side
from bench.broker_wire import HOST
from bench.hostile.attack import Attack
from headrace.protocol import encode_request
from headrace.protocol.messages.api_versions import ApiVersionsRequest

_API_VERSIONS = bytes(encode_request(ApiVersionsRequest(), 0, 1, "attacker"))
_TIMEOUT_SECONDS = 120.0


class NewConnections(Attack):
    """Opens connections at the same time, and sends ApiVersions on each."""

    max_wait_ms = None
    """Accepting is what this row measures; others wait for the same loop."""

    def __init__(self, count: int):
        self.name = f"{count:,} new connections, each with ApiVersions"
        self._count = count

    def run(self, side: Side) -> str:
        count = self._count // 20 if self.quick else self._count
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        connections = _Connections(side.port)
        try:
            began = time.perf_counter()
            connections.open(count)
            served = connections.wait(began + _TIMEOUT_SECONDS)
            seconds = time.perf_counter() - began
        finally:
            connections.close()
        return f"{served:,} served in {seconds:.1f} s"


class _Connections:
    """Connections that send ApiVersions as soon as they are open."""

    def __init__(self, port: int):
        self._port = port
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}

    def open(self, count: int) -> None:
        for _ in range(count):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex((HOST, self._port))
            self._sockets[sock.fileno()] = sock
            self._poll.register(sock.fileno(), select.EPOLLOUT)

    def wait(self, deadline: float) -> int:
        """Returns the number of connections that got a response before the deadline."""
        served = 0
        waiting = len(self._sockets)
        while waiting and time.perf_counter() < deadline:
            for fd, _ in self._poll.poll(1.0):
                try:
                    if self._advance(fd):
                        served += 1
                        waiting -= 1
                        self._poll.unregister(fd)
                except OSError:
                    waiting -= 1
                    self._poll.unregister(fd)
        return served

    def _advance(self, fd: int) -> bool:
        """Sends the request, or receives the response. Returns True if it is complete."""
        sock = self._sockets[fd]
        try:
            received = sock.recv(65536)
        except BlockingIOError:
            sock.sendall(_API_VERSIONS)
            self._poll.modify(fd, select.EPOLLIN)
            return False
        if not received:
            raise ConnectionResetError
        return True  # The first bytes count: the response is one segment.

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._poll.close()


def _is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class StalledRequests(Attack):
    """Connections that send most of a Produce request of the largest size, and then nothing more."""

    name = "20 connections that send 100 MB of a 104 MB request and stall"
    max_memory_mb = 400.0

    def __init__(self) -> None:
        self._stalled: list[socket.socket] = []

    def run(self, side: Side) -> str:
        size, sent_bytes = 104_000_000, 100_000_000
        if self.quick:
            size, sent_bytes = size // 20, sent_bytes // 20
        header = struct.pack(">ihhih", size, 0, 9, 1, 8) + b"attacker" + b"\0"
        block = memoryview(bytes(1 << 20))
        sent: dict[socket.socket, int] = {}
        for _ in range(20):
            sock = socket.create_connection((HOST, side.port))
            sock.sendall(header)
            sock.setblocking(False)
            sent[sock] = 0
        closed = 0
        progress_at = time.perf_counter()
        while sent and time.perf_counter() - progress_at < 5:
            _, writable, _ = select.select([], list(sent), [], 0.5)
            for sock in writable:
                try:
                    count = sock.send(block[: min(len(block), sent_bytes - sent[sock])])
                except OSError:
                    closed += 1
                    sock.close()
                    del sent[sock]
                    continue
                progress_at = time.perf_counter()
                sent[sock] += count
            stalled = [sock for sock, count in sent.items() if count >= sent_bytes]
            if len(stalled) == len(sent):
                break
            for sock in stalled:  # keep it open, without asking whether it is writable
                del sent[sock]
                self._stalled.append(sock)
        # What others notice while all of them stall.
        time.sleep(0.5 if self.quick else 10)
        for sock in [*sent, *self._stalled]:
            closed += _is_closed(sock)
            sock.close()
        return f"{closed} of 20 closed by the broker"
