"""The TLS transport with socket pairs, on an event loop."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.net.doubles import FileSlice
from tests.support.net.handshakes import contexts

from headrace.net.senders import SenderThreads
from headrace.net.tls_channel import TlsChannel
from headrace.net.tls_errors import TlsHandshakeError
from headrace.net.tls_transport import HANDSHAKE_BYTES, TlsTransport
from headrace.net.transport import Frame

SIZE = 3_000_000
DEADLINE_SECONDS = 60.0


class User:
    """Collects what a transport delivers."""

    def __init__(self, buffer_bytes: int = 50_000) -> None:
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.received = bytearray()
        self.opened = asyncio.Event()
        self.lost = asyncio.Event()
        self.changed = asyncio.Event()
        self.error: Exception | None = None
        self.ended = False
        self.paused = False
        self.on_bytes: Callable[[], object] = lambda: None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]
        self.changed.set()
        self.on_bytes()

    def eof_received(self) -> bool:
        self.ended = True
        self.changed.set()
        return False

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.changed.set()

    def failed(self, error: Exception | None) -> None:
        self.error = error
        self.lost.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.failed(error)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Pair:
    """A server's transport and a client's, connected by a socket pair."""

    def __init__(self, senders: SenderThreads | None = None) -> None:
        loop = asyncio.get_running_loop()
        server_context, client_context = contexts()
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        self.user, self.peer = User(), User()
        self.server = TlsTransport(
            loop,
            ours,
            self.user,
            TlsChannel(server_context, server_side=True),
            on_open=self.user.opened.set,
            on_failed=self.user.failed,
            senders=senders,
        )
        self.client = TlsTransport(
            loop,
            theirs,
            self.peer,
            TlsChannel(client_context, server_side=False, server_hostname="broker.example"),
            on_open=self.peer.opened.set,
            on_failed=self.peer.failed,
            delivers_rest=True,
        )


@asynccontextmanager
async def connected(*, senders: bool = False) -> AsyncIterator[Pair]:
    threads = SenderThreads(asyncio.get_running_loop(), 1) if senders else None
    pair = Pair(threads)
    pair.server.start()
    pair.client.start()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(pair.user.opened.wait(), pair.peer.opened.wait())
    pair.server.resume_reading()
    pair.client.resume_reading()
    try:
        yield pair
    finally:
        pair.server.abort()
        pair.client.abort()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await asyncio.gather(pair.user.lost.wait(), pair.peer.lost.wait())
        if threads is not None:
            await asyncio.to_thread(threads.close)


def run(main: Callable[[], object]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


@pytest.mark.parametrize("senders", [False, True])
@pytest.mark.parametrize("kind", ["bytes", "parts", "slices"])
def test_large_frames_arrive_complete(tmp_path: Path, kind: str, senders: bool) -> None:
    data = os.urandom(SIZE)
    path = tmp_path / "file"
    path.write_bytes(data)

    async def main() -> None:
        with path.open("rb") as file:
            middle = SIZE // 2 + 7
            frames: dict[str, Frame] = {
                "bytes": data,
                "parts": [data[:10], b"", memoryview(data)[10:middle], bytearray(data[middle:])],
                "slices": [
                    data[:5],
                    FileSlice(file.fileno(), 5, 95),
                    FileSlice(file.fileno(), 100, SIZE - 200),
                    data[-100:],
                ],
            }
            async with connected(senders=senders) as pair:
                pair.server.send(frames[kind])
                assert pair.user.paused  # more than a socket holds
                await pair.peer.until(lambda: len(pair.peer.received) == SIZE)
                await pair.user.until(lambda: not pair.user.paused)
                assert pair.peer.received == data
                assert pair.server.pending_bytes == 0
                # The channel still works in both directions.
                pair.client.send(b"request")
                await pair.user.until(lambda: pair.user.received == b"request")

    run(main)


def test_requests_during_a_large_response_wait() -> None:
    async def main() -> None:
        async with connected(senders=True) as pair:
            answers = 0

            def answer() -> None:
                nonlocal answers
                while len(pair.user.received) > answers and not pair.user.paused:
                    answers += 1
                    pair.server.send(b"x" * SIZE)

            pair.user.on_bytes = answer
            resume = pair.user.resume_writing

            def resumed() -> None:
                resume()
                answer()

            pair.user.resume_writing = resumed  # type: ignore[method-assign]
            for _ in range(5):
                pair.client.send(b"r")
                await asyncio.sleep(0)
            await pair.peer.until(lambda: len(pair.peer.received) == 5 * SIZE)

    run(main)


def test_paused_reading_delivers_nothing() -> None:
    async def main() -> None:
        async with connected() as pair:
            pair.user.on_bytes = pair.server.pause_reading
            pair.client.send(b"x" * 200_000)
            await pair.user.until(lambda: len(pair.user.received) > 0)
            for _ in range(10):
                before = len(pair.user.received)
                await asyncio.sleep(0)
                assert len(pair.user.received) == before
            pair.user.on_bytes = lambda: None
            pair.server.resume_reading()
            await pair.user.until(lambda: len(pair.user.received) == 200_000)

    run(main)


def test_close_sends_the_rest_and_announces_the_end() -> None:
    async def main() -> None:
        async with connected() as pair:
            pair.server.send(b"x" * SIZE)
            pair.server.close()
            pair.server.close()
            await pair.peer.until(lambda: pair.peer.ended)
            assert len(pair.peer.received) == SIZE
            assert pair.client.channel.ended
            await pair.user.lost.wait()
            assert pair.user.error is None
            pair.server.send(b"late")

    run(main)


def test_a_peer_that_is_gone_ends_the_connection() -> None:
    async def main() -> None:
        async with connected() as pair:
            pair.client.abort()
            await pair.user.until(lambda: pair.user.ended)
            async with asyncio.timeout(DEADLINE_SECONDS):
                await pair.user.lost.wait()

    run(main)


def test_a_client_reads_responses_after_a_failed_write() -> None:
    async def main() -> None:
        async with connected() as pair:
            pair.client.pause_reading()
            pair.server.send(b"response")
            pair.server.abort()
            pair.client.resume_reading()
            pair.client.send(b"late request")
            async with asyncio.timeout(DEADLINE_SECONDS):
                await pair.peer.lost.wait()
            assert pair.peer.received == b"response"

    run(main)


def test_damaged_bytes_end_the_connection() -> None:
    async def main() -> None:
        async with connected() as pair:
            sock: socket.socket = pair.client.get_extra_info("socket")
            sock.send(b"\x17\x03\x03\x00\x20" + bytes(32))
            async with asyncio.timeout(DEADLINE_SECONDS):
                await pair.user.lost.wait()
            assert isinstance(pair.user.error, ssl.SSLError)

    run(main)


# ---- handshakes that fail


@asynccontextmanager
async def lonely_server(timeout_seconds: float = DEADLINE_SECONDS) -> AsyncIterator[tuple[User, socket.socket]]:
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
    user = User()
    transport = TlsTransport(
        asyncio.get_running_loop(),
        ours,
        user,
        TlsChannel(contexts()[0], server_side=True),
        on_open=user.opened.set,
        on_failed=user.failed,
    )
    transport.start(timeout_seconds)
    try:
        yield user, theirs
        async with asyncio.timeout(DEADLINE_SECONDS):
            await user.lost.wait()
        assert not user.opened.is_set()
    finally:
        transport.abort()
        theirs.close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0\0\0\x20" + b"\0\x12\0\3", "does not speak TLS"),
        (b"GET / HTTP/1.1\r\n", "does not speak TLS"),
        (b"\x16\x03\x01\x00\x05hello", "SSL"),
    ],
)
def test_other_protocols(data: bytes, words: str) -> None:
    async def main() -> None:
        async with lonely_server() as (user, peer):
            peer.send(data)
        assert words in str(user.error)

    run(main)


def test_a_slow_handshake_times_out() -> None:
    async def main() -> None:
        async with lonely_server(0.01) as (user, peer):
            peer.send(b"\x16\x03\x01")
        assert "not complete within 0.01 seconds" in str(user.error)

    run(main)


def test_a_peer_closes_during_the_handshake() -> None:
    async def main() -> None:
        async with lonely_server() as (user, peer):
            peer.close()
        assert isinstance(user.error, TlsHandshakeError)
        assert user.error.ended

    run(main)


def test_a_handshake_has_a_limited_size() -> None:
    async def main() -> None:
        async with lonely_server() as (user, peer):
            loop = asyncio.get_running_loop()
            # Empty alerts and warnings do not fail by themselves, so only the size ends them.
            record = b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + bytes(16_380)
            try:
                for _ in range(HANDSHAKE_BYTES // len(record) + 2):
                    await loop.sock_sendall(peer, record)
            except OSError:
                pass  # the server has closed it
        assert user.error is not None

    run(main)


def test_abort_during_the_handshake_has_no_error() -> None:
    async def main() -> None:
        pair = Pair()
        pair.server.start()
        pair.server.pause_reading()
        pair.server.resume_reading()
        pair.server.abort()
        pair.client.start()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await asyncio.gather(pair.user.lost.wait(), pair.peer.lost.wait())
        assert pair.user.error is None
        assert pair.peer.error is not None

    run(main)
