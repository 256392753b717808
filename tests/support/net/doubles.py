"""Test doubles and helpers for socket tests, without real sockets except in `Serving` and `Peer`."""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from headrace.common.clock import Clock, SystemClock
from headrace.net import FrameHandler, Limits, Listener, ResponseSlot, ServerConnection, SocketServer
from headrace.net.framing import FrameReader
from headrace.net.receive_memory import ReceiveMemory

DEADLINE_SECONDS = 30.0


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def flat(reply: Any) -> bytes:
    """Returns the bytes of a frame."""
    if isinstance(reply, bytes | bytearray | memoryview):
        return bytes(reply)
    return b"".join(part.read() if hasattr(part, "read") else bytes(part) for part in reply)


class FakeLoop:
    """A loop that runs scheduled calls on request."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.later: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.readers: dict[int, Callable[[], object]] = {}
        self.writers: dict[int, Callable[[], object]] = {}
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        self.later.append((callback, args))

    def time_passes(self) -> None:
        later, self.later = self.later, []
        for callback, args in later:
            callback(*args)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback, args in soon:
            callback(*args)

    def run(self) -> None:
        while self.soon:
            self.turn()

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        del self.readers[fd]

    def add_writer(self, fd: int, callback: Callable[[], object]) -> None:
        self.writers[fd] = callback

    def remove_writer(self, fd: int) -> None:
        del self.writers[fd]


class FakeTransport:
    """Accepts every frame; if `full` is set, only one until `let_go` is called."""

    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop
        self.connection: ServerConnection | None = None
        self.sends: list[bytes] = []
        self.reading = False
        self.closing = False
        self.full = False
        self.pending_bytes = 0

    @property
    def sent(self) -> bytes:
        return b"".join(self.sends)

    def send(self, reply: Any) -> None:
        assert not self.pending_bytes, "the transport was given a reply while it had one"
        assert flat(reply), "the transport was given an empty reply"
        if self.closing:
            return
        self.sends.append(flat(reply))
        if self.full:
            self.pending_bytes = len(self.sends[-1])
            assert self.connection is not None
            self.connection.pause_writing()

    def let_go(self) -> None:
        """The peer has read everything."""
        self.pending_bytes = 0
        assert self.connection is not None
        self.connection.resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = not self.closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.closing:
            self.closing = True
            self.reading = False
            assert self.connection is not None
            self.loop.call_soon(self.connection.connection_lost, None)


class FakeServer:
    """The server of a connection."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.memory = ReceiveMemory(limits.request_max_bytes, limits.queued_max_bytes)
        self.bytes_in = self.bytes_out = self.frames_in = self.invalid_frames = 0
        self.quiet: list[ServerConnection] = []
        self.lost: list[ServerConnection] = []

    def connection_quiet(self, connection: ServerConnection) -> None:
        self.quiet.append(connection)

    def connection_lost(self, connection: ServerConnection) -> None:
        self.lost.append(connection)


class Recorder:
    """A handler that keeps frames and response slots and calls `on_frame`."""

    def __init__(self, on_frame: Callable[[ServerConnection, bytes], object] | None = None) -> None:
        self.frames: list[bytes] = []
        self.slots: list[ResponseSlot] = []
        self.made: list[ServerConnection] = []
        self.lost: list[tuple[ServerConnection, Exception | None]] = []
        self.on_frame = on_frame or (lambda connection, payload: None)

    def connection_made(self, connection: ServerConnection) -> None:
        self.made.append(connection)

    def frame_received(self, connection: ServerConnection, frame: memoryview) -> None:
        assert not frame.readonly
        payload = bytes(frame)
        self.frames.append(payload)
        self.on_frame(connection, payload)
        frame[:] = bytes(len(frame))  # so that later use of the frame is noticed

    def connection_lost(self, connection: ServerConnection, error: Exception | None) -> None:
        self.lost.append((connection, error))

    def defer(self, connection: ServerConnection, payload: bytes) -> None:
        """An `on_frame` that sends no response yet."""
        self.slots.append(connection.expect_response())


def echo(connection: ServerConnection, payload: bytes) -> None:
    """An `on_frame` that responds at once."""
    connection.expect_response().send(frame(payload))


class Wired:
    """A connection between test doubles."""

    def __init__(self, handler: FrameHandler, limits: Limits | None = None) -> None:
        self.loop = FakeLoop()
        self.transport = FakeTransport(self.loop)
        self.server = FakeServer(limits or Limits())
        loop: Any = self.loop
        self.connection = ServerConnection(self.server, handler, loop, "PLAINTEXT", ("10.0.0.1", 5000), 0.0)
        self.transport.connection = self.connection
        self.connection.connection_made(self.transport)

    def offer(self, data: bytes) -> bytes:
        """Delivers bytes while the transport reads; returns the rest."""
        while data and self.transport.reading:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.connection.buffer_updated(size)
        return data

    def receive(self, data: bytes) -> None:
        """Delivers all bytes."""
        left = self.offer(data)
        assert not left, f"{len(left)} bytes are left, and the connection does not read"


def read_all(reader: FrameReader, chunks: Iterable[bytes]) -> list[bytes]:
    """Returns the frames that a reader finds in these chunks."""
    frames = []
    for chunk in chunks:
        while chunk:
            buffer = reader.get_buffer()
            size = min(len(buffer), len(chunk))
            buffer[:size] = chunk[:size]
            chunk = chunk[size:]
            found = reader.updated(size)
            if found is not None:
                frames.append(bytes(found))
                continue
            while (found := reader.next_frame()) is not None:
                frames.append(bytes(found))
            reader.settle()
    return frames


class FileSlice:
    """A slice of a real file."""

    def __init__(self, fd: int, position: int, size: int) -> None:
        self.fd = fd
        self.position = position
        self.size = size
        self.calls = 0

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self.fd

    def read(self) -> bytes:
        return os.pread(self.fd, self.size, self.position)

    def send_to(self, fd: int, sent: int = 0, /) -> int:
        self.calls += 1
        return os.sendfile(fd, self.fd, self.position + sent, self.size - sent)


@asynccontextmanager
async def serving(
    handler: FrameHandler, limits: Limits | None = None, host: str = "127.0.0.1", clock: Clock | None = None
) -> AsyncIterator[SocketServer]:
    server = SocketServer([Listener("PLAINTEXT", host, 0)], handler, limits or Limits(), clock or SystemClock())
    await server.start()
    try:
        yield server
    finally:
        await server.close()


class Peer:
    """A client's side: a plain socket, driven from the server's loop."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @classmethod
    async def connect(cls, server: SocketServer, host: str = "127.0.0.1", receive_buffer: int = 0) -> "Peer":
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setblocking(False)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(sock, (host, server.endpoints[0].port))
        return cls(sock)

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(self.sock, data), DEADLINE_SECONDS)

    async def receive(self, size: int) -> bytes:
        """Reads that many bytes, or fewer if the connection ends."""
        data = bytearray(size)
        view = memoryview(data)
        got = 0
        while got < size:
            try:
                count = await asyncio.wait_for(
                    asyncio.get_running_loop().sock_recv_into(self.sock, view[got:]), DEADLINE_SECONDS
                )
            except ConnectionResetError:
                break
            if not count:
                break
            got += count
        return bytes(view[:got])

    async def reply(self) -> bytes:
        """Reads the next frame."""
        head = await self.receive(4)
        assert len(head) == 4, "the connection has ended"
        return await self.receive(struct.unpack(">i", head)[0])

    async def ended(self) -> bool:
        """Waits for the end of the connection; returns False if a byte arrives first."""
        return await self.receive(1) == b""

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Waits for a condition, with a deadline."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await asyncio.sleep(0.002)
    assert condition(), what
