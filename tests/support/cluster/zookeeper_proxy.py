"""A proxy between a client and ZooKeeper that knows requests from responses.

    with ZooKeeperProxy(zookeeper.connect) as proxy:
        store = await open_store(proxy.connect)
        proxy.cut_before(CREATE)     # the next create does not reach ZooKeeper
        proxy.cut_after(CREATE)      # the next create is executed, its response is lost

A frame is its length (4 bytes) and its content, which starts with the xid. A request has its operation after the xid.
The first frame of each direction opens the session and has neither.
"""

import contextlib
import socket
import struct
import threading
from types import TracebackType

HOST = "127.0.0.1"
CREATE, DELETE, EXISTS, GET, SET, CHILDREN, SYNC, MULTI, MULTI_READ = 1, 2, 3, 4, 5, 8, 9, 14, 22


class ZooKeeperProxy:
    """Forwards connections to one server, and cuts them on demand."""

    def __init__(self, target: str):
        host, _, port = target.partition(",")[0].rpartition(":")
        self.target = (host, int(port))
        self.cuts = 0
        self._cut_before: int | None = None
        self._cut_after: int | None = None
        self._is_blocked = False
        self._guard = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server((HOST, 0))
        self._is_closed = False
        threading.Thread(target=self._accept, name="zookeeper-proxy", daemon=True).start()

    @property
    def connect(self) -> str:
        return f"{HOST}:{self._listener.getsockname()[1]}"

    def cut_before(self, operation: int) -> None:
        """Cuts the connection instead of forwarding the next request of this kind."""
        self._cut_before = operation

    def cut_after(self, operation: int) -> None:
        """Cuts the connection instead of forwarding the response to the next request of this kind."""
        self._cut_after = operation

    def cut_now(self) -> None:
        self.cuts += 1
        with self._guard:
            sockets = tuple(self._sockets)
        for each in sockets:
            _hang_up(each)

    def block(self) -> None:
        """Cuts all connections, and accepts none until `unblock`."""
        self._is_blocked = True
        self.cut_now()

    def unblock(self) -> None:
        self._is_blocked = False

    def __enter__(self) -> "ZooKeeperProxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        _hang_up(self._listener)
        self._listener.close()
        self.cut_now()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_blocked:
                client.close()
                continue
            try:
                server = socket.create_connection(self.target, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._guard:
                self._sockets |= {client, server}
            lost: set[int] = set()
            for job in ((client, server, lost, True), (server, client, lost, False)):
                threading.Thread(target=self._copy, args=job, name="zookeeper-proxy-copy", daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, lost: set[int], is_request: bool) -> None:
        is_first = True
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _read(source, struct.unpack(">i", _read(source, 4))[0])
                if not is_first and self._is_cut(frame, lost, is_request):
                    self.cuts += 1
                    break
                is_first = False
                sink.sendall(struct.pack(">i", len(frame)) + frame)
        for each in (source, sink):
            _hang_up(each)
        with self._guard:
            was_open = source in self._sockets
            self._sockets -= {source, sink}
        if not was_open:
            source.close()
            sink.close()

    def _is_cut(self, frame: bytes, lost: set[int], is_request: bool) -> bool:
        (xid,) = struct.unpack_from(">i", frame)
        if not is_request:
            return xid in lost
        (operation,) = struct.unpack_from(">i", frame, 4)
        if operation == self._cut_before:
            self._cut_before = None
            return True
        if operation == self._cut_after:
            self._cut_after = None
            lost.add(xid)
        return False


def _read(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = source.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def _hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
