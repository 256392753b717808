"""The part of kazoo that runs threads and sockets, replaced so that everything happens in order on one thread.

kazoo calls watches on one thread, completes requests on a second and reads from its connection on a third. The order
of watches and responses is lost on the way, but ZooKeeper promises that a client sees the event of a change before
any later response. Here all three happen on the thread of the connection. They must not block: they only pass a
message to the event loop.
"""

import select
import socket
import ssl
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler


class WakeUpSocket:
    """The socket with which kazoo's callers wake its thread: a byte for each request. `send` never blocks.

    kazoo's own socket does, if the thread does not read it because it is connecting. That would stop the event loop
    until ZooKeeper responds. A byte that does not fit is not needed: many others are waiting for the thread.
    """

    def __init__(self, wrapped: socket.socket):
        wrapped.setblocking(False)
        self._socket = wrapped

    def send(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self._socket.close()


class ConnectionThreadHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Runs everything on the thread of the connection, and opens its socket."""

    name = "headrace_connection_thread_handler"

    def __init__(self, tls: ssl.SSLContext | None = None):
        super().__init__()
        self._tls = tls

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def create_socket_pair(self) -> tuple[socket.socket, WakeUpSocket]:
        reader, writer = socket.socketpair()
        return reader, WakeUpSocket(writer)

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> Thread:
        thread = Thread(target=func, args=args, kwargs=kwargs, name="headrace-zookeeper", daemon=True)
        thread.start()
        return thread

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Waits for sockets. A TLS socket may have bytes that the operating system no longer knows of."""
        buffered = [reader for reader in readers if isinstance(reader, ssl.SSLSocket) and reader.pending()]
        if buffered:
            timeout = 0
        poll = select.poll()
        by_descriptor: dict[int, Any] = {}
        for wanted, flag in ((readers, select.POLLIN), (writers, select.POLLOUT)):
            for each in wanted:
                by_descriptor[each.fileno()] = each
                poll.register(each, flag)
        ready = {by_descriptor[descriptor] for descriptor, _ in poll.poll(None if timeout is None else timeout * 1000)}
        return (
            [reader for reader in readers if reader in ready or reader in buffered],
            [writer for writer in writers if writer in ready],
            [],
        )

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        connection = socket.create_connection(address, timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                return self._tls.wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise
        return connection
