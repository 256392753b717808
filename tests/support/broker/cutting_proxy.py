"""A proxy between clients and a broker that cuts a connection after a given number of response bytes.

    with CuttingProxy() as proxy, EmbeddedBroker(proxy.properties) as broker:
        proxy.target = broker.address
        proxy.cut_after(100)          # cuts the next connection after 100 response bytes

The broker advertises the proxy's address, so everything that clients do goes through it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

_HOST = "127.0.0.1"


class CuttingProxy:
    def __init__(self) -> None:
        self.target: tuple[str, int] = (_HOST, 0)
        self.replied_bytes = 0
        """The number of forwarded response bytes of all connections."""
        self.cuts = 0
        """The number of connections that were cut."""
        self._cut_after: int | None = None
        self._guard = threading.Lock()
        self._listener = socket.create_server((_HOST, 0))
        self._sockets: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, name="cutting-proxy", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def properties(self) -> dict[str, str]:
        """The configs of a broker behind this proxy, which listens on any free port."""
        return {
            "listeners": f"PLAINTEXT://{_HOST}:0",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
        }

    def cut_after(self, size: int | None) -> None:
        """Cuts the next connection after this number of response bytes; None disables it."""
        with self._guard:
            self._cut_after = size

    def cut_now(self) -> None:
        """Closes all connections."""
        for each in tuple(self._sockets):
            _hang_up(each)

    def close(self) -> None:
        self._closed = True
        _hang_up(self._listener)
        self._listener.close()
        self.cut_now()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._guard:
                budget, self._cut_after = self._cut_after, None
            try:
                broker = socket.create_connection(self.target, timeout=30)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            self._sockets |= {client, broker}
            ended: list[bool] = []
            for job in ((client, broker, False, None, ended), (broker, client, True, budget, ended)):
                threading.Thread(target=self._copy, args=job, name="cutting-proxy-copy", daemon=True).start()

    def _copy(
        self, source: socket.socket, sink: socket.socket, is_reply: bool, budget: int | None, ended: list[bool]
    ) -> None:
        """Forwards one direction. Only responses, which have a budget, are cut. The last direction that ends closes
        both sockets."""
        with contextlib.suppress(OSError):
            while budget is None or budget > 0:
                data = source.recv(65_536 if budget is None else min(budget, 65_536))
                if not data:
                    break
                sink.sendall(data)
                if is_reply:
                    self.replied_bytes += len(data)
                if budget is not None:
                    budget -= len(data)
            else:
                self.cuts += 1
        for each in (source, sink):
            _hang_up(each)
            self._sockets.discard(each)
        with self._guard:
            ended.append(is_reply)
            is_last = len(ended) == 2
        if is_last:
            source.close()
            sink.close()


def _hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
