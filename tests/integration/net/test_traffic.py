"""Real sockets on loopback: everything arrives, complete and in order."""

import asyncio
import gc
import hashlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.net.doubles import FileSlice, Peer, Recorder, echo, frame, serving, until

from headrace.common.clock import SystemClock
from headrace.net import Limits, Listener, ServerConnection, SocketServer, transport
from headrace.net.framing import FrameReader
from headrace.net.transport import PlainTransport

MB = 1024 * 1024


@pytest.fixture
def data_file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "data"
    path.write_bytes(b"".join(hashlib.sha256(struct.pack(">I", number)).digest() * 1024 for number in range(1280)))
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


class Files(Recorder):
    """Responds to `position size` with that slice of a file, between a head and a tail."""

    def __init__(self, fd: int) -> None:
        super().__init__(self.answer)
        self.fd = fd
        self.slices: list[FileSlice] = []

    def answer(self, connection: ServerConnection, payload: bytes) -> None:
        position, size = map(int, payload.split())
        part = FileSlice(self.fd, position, size)
        self.slices.append(part)
        connection.expect_response().send([struct.pack(">i", size + 8) + b"head", part, b"tail"])


def expected(fd: int, position: int, size: int) -> bytes:
    return b"head" + os.pread(fd, size, position) + b"tail"


def test_frames_of_all_sizes() -> None:
    async def scenario() -> None:
        async with serving(Recorder(echo)) as server:
            peer = await Peer.connect(server)
            for size in (1, 100, 65_000, 66_000, 300_000, 1_200_000, 3_000_000, 20_000_000, 5):
                payload = os.urandom(size)
                receiving = asyncio.create_task(peer.reply())
                await peer.send(frame(payload))
                assert await receiving == payload
            peer.close()
            await until(lambda: not server.connections)
            assert server.memory.held_bytes == 0

    asyncio.run(scenario())


def test_pipelined_requests_on_many_connections() -> None:
    async def one(server: SocketServer, number: int) -> None:
        peer = await Peer.connect(server)
        payloads = [b"%d %d" % (number, request) * (request * number % 997 + 1) for request in range(100)]
        sending = asyncio.create_task(peer.send(b"".join(map(frame, payloads))))
        for payload in payloads:
            assert await peer.reply() == payload
        await sending
        peer.close()

    async def scenario() -> None:
        handler = Recorder(echo)
        async with serving(handler) as server:
            await asyncio.gather(*(one(server, number) for number in range(20)))
            assert server.frames_in == 2000
            assert server.bytes_in == server.bytes_out
            await until(lambda: len(handler.lost) == 20)

    asyncio.run(scenario())


def test_500_connections() -> None:
    async def scenario() -> None:
        handler = Recorder(echo)
        async with serving(handler, Limits(backlog=500)) as server:
            peers = [await Peer.connect(server) for _ in range(500)]
            await until(lambda: server.connections_open == 500)
            for number, peer in enumerate(peers):
                await peer.send(frame(b"%d" % number))
            for number, peer in enumerate(peers):
                assert await peer.reply() == b"%d" % number
            assert server.memory.held_bytes == 0
            for peer in peers:
                peer.close()
            await until(lambda: not server.connections)
        assert len(handler.made) == len(handler.lost) == 500

    asyncio.run(scenario())


@pytest.mark.parametrize("send_buffer", [-1, 65_536])
def test_file_slices(data_file: int, send_buffer: int) -> None:
    async def scenario() -> None:
        async with serving(Files(data_file), Limits(send_buffer_bytes=send_buffer)) as server:
            peer = await Peer.connect(server)
            for position, size in [(0, 10), (5, 32_000), (7, 33_000), (100, 2 * MB), (3, 39 * MB)]:
                await peer.send(frame(b"%d %d" % (position, size)))
                assert await peer.reply() == expected(data_file, position, size)
            peer.close()

    asyncio.run(scenario())


def test_slow_reader_gets_everything_and_does_not_delay_others(data_file: int) -> None:
    async def scenario() -> None:
        handler = Files(data_file)
        limits = Limits(send_buffer_bytes=65_536, max_queued_bytes=MB)
        async with serving(handler, limits) as server:
            slow = await Peer.connect(server, receive_buffer=32_768)
            plan = [(number * 100, 30 * MB if number == 0 else 40_000 + number) for number in range(60)]
            await slow.send(b"".join(frame(b"%d %d" % request) for request in plan))
            await until(lambda: handler.frames)
            quick = await Peer.connect(server)
            for position, size in [(1, 100), (2, 5 * MB)]:
                await quick.send(frame(b"%d %d" % (position, size)))
                assert await quick.reply() == expected(data_file, position, size)
            assert len(handler.frames) < 60, "the number of handled requests of the slow reader is limited"
            for position, size in plan:
                assert await slow.reply() == expected(data_file, position, size)
            assert handler.slices[0].calls > 1, "sent in pieces, by the loop and by sender threads"
            slow.close()
            quick.close()

    asyncio.run(scenario())


def test_late_slice_keeps_its_order(data_file: int) -> None:
    async def scenario() -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        async with serving(handler) as server:
            peer = await Peer.connect(server)
            await peer.send(frame(b"a") + frame(b"b") + frame(b"c"))
            await until(lambda: len(handler.slots) == 3)
            handler.slots[2].send(frame(b"third"))
            handler.slots[1].send([struct.pack(">i", 3 * MB), FileSlice(data_file, 0, 3 * MB)])
            handler.slots[0].send([struct.pack(">i", 2 * MB), FileSlice(data_file, 50, 2 * MB)])
            assert await peer.reply() == os.pread(data_file, 2 * MB, 50)
            assert await peer.reply() == os.pread(data_file, 3 * MB, 0)
            assert await peer.reply() == b"third"
            peer.close()

    asyncio.run(scenario())


def test_short_file_closes_the_connection(data_file: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(Files(data_file)) as server:
            size = os.fstat(data_file).st_size
            peer = await Peer.connect(server)
            await peer.send(frame(b"%d %d" % (size - 1000, 100_000)))
            assert len(await peer.receive(200_000)) <= 1008
            peer.close()

    asyncio.run(scenario())
    assert "sending a response failed midway" in caplog.text


def test_half_closed_peer_receives_its_responses(data_file: int) -> None:
    async def scenario() -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        async with serving(handler) as server:
            peer = await Peer.connect(server)
            await peer.send(frame(b"a") + frame(b"b"))
            peer.sock.shutdown(socket.SHUT_WR)
            await until(lambda: len(handler.slots) == 2)
            handler.slots[1].send(frame(b"B"))
            handler.slots[0].send([struct.pack(">i", 8 * MB), FileSlice(data_file, 0, 8 * MB)])
            assert await peer.reply() == os.pread(data_file, 8 * MB, 0)
            assert await peer.reply() == b"B"
            assert await peer.ended()
            peer.close()
            await until(lambda: handler.lost)
            assert handler.lost[0][1] is None

    asyncio.run(scenario())


def test_resets_at_any_time(data_file: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        handler = Files(data_file)
        async with serving(handler, Limits(send_buffer_bytes=65_536)) as server:
            for number in range(30):
                peer = await Peer.connect(server, receive_buffer=32_768)
                if number % 3 == 0:
                    await peer.send(frame(b"0 20000000") * 3)
                    await until(lambda number=number: len(handler.made) == number + 1)
                elif number % 3 == 1:
                    await peer.send(frame(bytes(1_000_000))[:500_000])
                peer.reset()
            await until(lambda: len(handler.lost) == len(handler.made) and not server.connections)
            good = await Peer.connect(server)
            await good.send(frame(b"0 100"))
            assert await good.reply() == expected(data_file, 0, 100)
            good.close()
            assert server.memory.held_bytes == 0

    asyncio.run(scenario())
    assert caplog.text == "", "nothing is logged"


def test_closed_connections_leave_no_objects(data_file: int) -> None:
    class Echo:
        def connection_made(self, connection: ServerConnection) -> None:
            connection.context = []

        def frame_received(self, connection: ServerConnection, frame: memoryview) -> None:
            connection.context.append(connection.expect_response())
            if len(connection.context) == 2:
                connection.context.pop().send([struct.pack(">i", MB), FileSlice(data_file, 0, MB)])
                connection.context.pop().send(b"")

        def connection_lost(self, connection: ServerConnection, error: Exception | None) -> None:
            pass

    def alive() -> int:
        return sum(isinstance(found, ServerConnection | PlainTransport | FrameReader) for found in gc.get_objects())

    async def scenario() -> None:
        async with serving(Echo()) as server:
            for number in range(30):
                peer = await Peer.connect(server)
                await peer.send(frame(bytes(500_000)) + frame(b"b"))
                if number % 2:
                    assert len(await peer.reply()) == MB
                    peer.close()
                else:
                    peer.reset()
            await until(lambda: not server.connections)
            assert alive() == before, "freed without the garbage collector"

    gc.collect()
    before = alive()
    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()


def test_dropped_connection() -> None:
    async def scenario() -> None:
        handler = Recorder()
        handler.on_frame = lambda connection, payload: connection.close("a test")
        async with serving(handler) as server:
            peer = await Peer.connect(server)
            await peer.send(frame(b"a"))
            assert await peer.ended()
            await until(lambda: handler.lost)
            peer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["::1", "", "localhost"])
def test_ipv6(host: str) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")

    async def scenario() -> None:
        handler = Recorder(echo)
        async with serving(handler, host=host) as server:
            for address in ["::1"] if host == "::1" else ["::1", "127.0.0.1"]:
                if host == "localhost" and address not in {info[4][0] for info in socket.getaddrinfo("localhost", 0)}:
                    continue
                peer = await Peer.connect(server, address)
                await peer.send(frame(b"hello"))
                assert await peer.reply() == b"hello"
                connection = handler.made[-1]
                assert connection.peer == (address, peer.sock.getsockname()[1])
                peer.close()

    asyncio.run(scenario())


def test_several_listeners() -> None:
    async def scenario() -> None:
        handler = Recorder(echo)
        listeners = [Listener("INTERNAL", "127.0.0.1", 0), Listener("EXTERNAL", "127.0.0.1", 0)]
        server = SocketServer(listeners, handler, Limits(), SystemClock())
        await server.start()
        assert [endpoint.name for endpoint in server.endpoints] == ["INTERNAL", "EXTERNAL"]
        for endpoint in server.endpoints:
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.write(frame(b"x"))
            assert await reader.readexactly(5) == frame(b"x")
            writer.close()
            await writer.wait_closed()
        assert [connection.listener_name for connection in handler.made] == ["INTERNAL", "EXTERNAL"]
        await server.close()

    asyncio.run(scenario())


class Pieces(asyncio.BufferedProtocol):
    """Records the bytes of each read."""

    def __init__(self) -> None:
        self.pieces: list[int] = []
        self.ended = False
        self._buffer = memoryview(bytearray(4 * MB))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.pieces.append(nbytes)

    def eof_received(self) -> bool:
        self.ended = True
        return False


@pytest.mark.skipif(not transport._CAN_WAIT, reason="this system does not make room for what is waited for")
def test_wake_at_waits_for_many_bytes_and_notices_the_end() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            ours = socket.create_connection(listening.getsockname())
            theirs, _ = listening.accept()
        ours.setblocking(False)
        theirs.setblocking(False)
        protocol = Pieces()
        reader = PlainTransport(loop, ours, protocol)
        reader.wake_at(MB)
        reader.resume_reading()
        for _ in range(16):
            await loop.sock_sendall(theirs, bytes(MB // 16))
        await until(lambda: sum(protocol.pieces) == MB)
        assert len(protocol.pieces) == 1
        await loop.sock_sendall(theirs, bytes(1000))
        theirs.close()
        await until(lambda: protocol.ended)
        assert sum(protocol.pieces) == MB + 1000

    asyncio.run(main())
