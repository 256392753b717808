"""Limits of connections, and invalid input."""

import asyncio
import errno
import logging
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.net.doubles import Peer, Recorder, echo, frame, serving, until

from headrace.common.clock import SystemClock
from headrace.common.metrics import Metrics
from headrace.net import BindError, Limits, Listener, SocketServer
from headrace.net.receive_memory import LARGE_BYTES
from headrace.net.stalled_requests import MAX_SILENT_SECONDS, MAX_SLOW_SECONDS
from headrace.testing.clock import ManualClock


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_claimed_frame_sizes_cost_no_memory() -> None:
    async def scenario() -> None:
        async with serving(Recorder(), Limits(backlog=300, queued_max_bytes=-1)) as server:
            before = resident_bytes()
            peers = [await Peer.connect(server) for _ in range(300)]
            for peer in peers:
                await peer.send(struct.pack(">i", 100_000_000) + b"a")
            await until(lambda: server.memory.held_bytes >= 300 * 100_000_000)
            assert resident_bytes() - before < 30_000_000
            for peer in peers:
                peer.close()
            await until(lambda: not server.connections)
            assert server.memory.held_bytes == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("data", [struct.pack(">i", 2_000_000), struct.pack(">i", -1), b"GET / HTTP/1.1\r\n\r\n"])
def test_invalid_frames_close_the_connection(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with serving(Recorder(echo), Limits(request_max_bytes=1_000_000)) as server:
            good, bad = await Peer.connect(server), await Peer.connect(server)
            await bad.send(data)
            assert await bad.ended()
            await good.send(frame(b"still here"))
            assert await good.reply() == b"still here"
            assert server.invalid_frames == 1
            good.close()
            bad.close()

    asyncio.run(scenario())
    assert "Connection 127.0.0.1:" in caplog.text


def test_max_connections(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        handler = Recorder(echo)
        async with serving(handler, Limits(max_connections=3)) as server:
            peers = [await Peer.connect(server) for _ in range(3)]
            await until(lambda: server.connections_open == 3)
            for _ in range(5):
                over = await Peer.connect(server)
                assert await over.ended()
                over.close()
            assert (server.rejected, len(handler.made)) == (5, 3)
            peers.pop().close()
            await until(lambda: server.connections_open == 2)
            peers.append(await Peer.connect(server))
            await peers[-1].send(frame(b"in"))
            assert await peers[-1].reply() == b"in"
            for peer in peers:
                peer.close()

    asyncio.run(scenario())
    assert caplog.text.count("refused a connection from 127.0.0.1:") == 1, "one line, not one per connection"
    assert "max.connections" in caplog.text


def test_max_connections_of_a_listener() -> None:
    async def scenario() -> None:
        listeners = [Listener(name, "127.0.0.1", 0) for name in ("A", "B")]
        limits = Limits(listener_max_connections={"A": 1}, max_connections=3, protected_listener="B")
        server = SocketServer(listeners, Recorder(echo), limits, SystemClock())
        await server.start()

        async def connect(listener: int) -> Peer:
            sock = socket.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.endpoints[listener].port))
            return Peer(sock)

        async def is_served(peer: Peer) -> bool:
            with suppress(ConnectionError):
                await peer.send(frame(b"x"))
            return await peer.receive(5) == frame(b"x")

        try:
            first, over = await connect(0), await connect(0)
            assert await is_served(first)
            assert await over.ended()
            others = [await connect(1) for _ in range(2)]
            assert all([await is_served(peer) for peer in others])
            # Brokers can connect in any case: the connection of a client is closed for them.
            others.append(await connect(1))
            assert await is_served(others[-1])
            assert await first.ended()
            for peer in (first, over, *others):
                peer.close()
        finally:
            await server.close()

    asyncio.run(scenario())


class Rates:
    """Rates that delay or throttle the next connections for a few milliseconds."""

    def __init__(self) -> None:
        self.delays: list[int] = []
        self.throttles: list[int] = []

    def accept_delay_ms(self, listener: str) -> int:
        assert listener == "PLAINTEXT"
        return self.delays.pop(0) if self.delays else 0

    def throttle_ms(self, listener: str, host: str) -> int:
        assert (listener, host) == ("PLAINTEXT", "127.0.0.1")
        return self.throttles.pop(0) if self.throttles else 0


def test_new_connections_above_the_rate_are_served_later() -> None:
    async def scenario() -> None:
        async with serving(Recorder(echo)) as server:
            server.rates = rates = Rates()
            rates.delays = [3_600_000]
            first, second = await Peer.connect(server), await Peer.connect(server)
            await until(lambda: not rates.delays)
            await first.send(frame(b"1"))
            await second.send(frame(b"2"))
            assert server.connections_open == 0
        # Closing the server closes the connections that wait.
        assert await first.ended()
        async with serving(Recorder(echo)) as server:
            server.rates = rates = Rates()
            rates.delays = [20, 20]
            peers = [await Peer.connect(server) for _ in range(3)]
            for peer in peers:
                await peer.send(frame(b"x"))
            for peer in peers:
                assert await peer.reply() == b"x"
            for peer in (first, second, *peers):
                peer.close()

    asyncio.run(scenario())


def test_connections_above_the_rate_of_their_address_are_closed_later(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(Recorder(echo)) as server:
            server.rates = rates = Rates()
            rates.throttles = [20, 20, 3_600_000]
            throttled = [await Peer.connect(server) for _ in range(3)]
            served = await Peer.connect(server)
            await served.send(frame(b"x"))
            assert await served.reply() == b"x"
            assert await throttled[0].ended()
            assert await throttled[1].ended()
            assert server.connections_open == 1
            served.close()
        assert await throttled[2].ended()
        for peer in throttled:
            peer.close()

    asyncio.run(scenario())
    assert caplog.text.count("connection_creation_rate") == 1


def test_max_connections_per_ip() -> None:
    async def scenario() -> None:
        limits = Limits(max_connections_per_ip=2, per_ip_overrides={"127.0.0.2": 1})
        async with serving(Recorder(echo), limits, host="0.0.0.0") as server:
            peers: list[Peer] = []

            async def admitted(source: str) -> bool:
                sock = socket.socket()
                sock.bind((source, 0))
                sock.setblocking(False)
                await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.endpoints[0].port))
                peers.append(Peer(sock))
                with suppress(ConnectionError):
                    await peers[-1].send(frame(b"x"))
                return await peers[-1].receive(5) == frame(b"x")

            assert [await admitted("127.0.0.1") for _ in range(3)] == [True, True, False]
            assert [await admitted("127.0.0.2") for _ in range(2)] == [True, False]
            assert server.rejected == 2
            for peer in peers:
                peer.close()

    asyncio.run(scenario())


def test_idle_connections_are_closed_unless_a_request_waits() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        handler = Recorder(echo)
        async with serving(handler, Limits(idle_ms=10_000), clock=clock) as server:
            idle, busy, waiting = [await Peer.connect(server) for _ in range(3)]
            await until(lambda: server.connections_open == 3)
            handler.on_frame = handler.defer
            await waiting.send(frame(b"w"))
            await until(lambda: handler.slots)
            handler.on_frame = echo
            server.close_idle()
            for _ in range(4):
                clock.advance(4_000)
                await busy.send(frame(b"b"))
                assert await busy.reply() == b"b"
                server.close_idle()
            assert await idle.ended()
            assert (server.connections_open, server.idle_closed) == (2, 1)
            handler.slots[0].send(frame(b"at last"))
            assert await waiting.reply() == b"at last"
            for peer in (idle, busy, waiting):
                peer.close()

    asyncio.run(scenario())


def test_lost_peer_leaves_no_request_waiting() -> None:
    """An outstanding response does not keep the connection of a peer that has closed it."""

    async def scenario() -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        async with serving(handler, Limits(idle_ms=-1)) as server:
            peer = await Peer.connect(server)
            await peer.send(frame(b"w"))
            await until(lambda: handler.slots)
            peer.close()
            await until(lambda: handler.lost)
            assert server.connections_open == 0
            handler.slots[0].send(frame(b"to nobody"))

    asyncio.run(scenario())


def test_idle_check_runs_periodically() -> None:
    async def scenario() -> None:
        async with serving(Recorder(echo), Limits(idle_ms=50)) as server:
            peer = await Peer.connect(server)
            assert await peer.ended()
            peer.close()
            assert server.idle_closed == 1

    asyncio.run(scenario())


def test_negative_idle_time_means_never() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with serving(Recorder(echo), Limits(idle_ms=-1), clock=clock) as server:
            peer = await Peer.connect(server)
            await until(lambda: server.connections_open == 1)
            for _ in range(3):
                clock.advance(10**9)
                server.close_idle()
            await peer.send(frame(b"x"))
            assert await peer.reply() == b"x"
            peer.close()

    asyncio.run(scenario())


def test_out_of_file_descriptors(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The server pauses accepting instead of spinning, and resumes automatically."""
    monkeypatch.setattr("headrace.net.server._ACCEPT_RETRY_SECONDS", 0.01)
    failures = 0
    real = socket.socket.accept

    def accept(self: socket.socket) -> tuple[socket.socket, object]:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self)

    async def scenario() -> None:
        async with serving(Recorder(echo)) as server:
            monkeypatch.setattr(socket.socket, "accept", accept)
            peer = await Peer.connect(server)
            await peer.send(frame(b"x"))
            assert await peer.reply() == b"x"
            peer.close()

    asyncio.run(scenario())
    assert failures == 3
    assert caplog.text.count("Listener PLAINTEXT: cannot accept connections: Too many open files") == 1


def test_limits_can_change_at_run_time() -> None:
    async def scenario() -> None:
        async with serving(Recorder(echo), Limits(max_connections=0)) as server:
            refused = await Peer.connect(server)
            assert await refused.ended()
            server.limits = Limits(max_connections=1)
            peer = await Peer.connect(server)
            await peer.send(frame(b"x"))
            assert await peer.reply() == b"x"
            refused.close()
            peer.close()

    asyncio.run(scenario())


def test_unavailable_addresses_raise() -> None:
    async def start(*listeners: Listener) -> None:
        server = SocketServer(list(listeners), Recorder(), Limits(), SystemClock())
        try:
            await server.start()
        finally:
            await server.close()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        good = Listener("GOOD", "127.0.0.1", 0)
        with pytest.raises(BindError, match=rf"cannot listen on BAD://127\.0\.0\.1:{port}: the port is in use"):
            asyncio.run(start(good, Listener("BAD", "127.0.0.1", port)))
    with pytest.raises(BindError, match=r"BAD://203\.0\.113\.1:0: this machine does not have that address"):
        asyncio.run(start(good, Listener("BAD", "203.0.113.1", 0)))
    with pytest.raises(BindError, match=r"BAD://no\.such\.host\.invalid:0: cannot resolve 'no\.such\.host\.invalid'"):
        asyncio.run(start(Listener("BAD", "no.such.host.invalid", 0)))
    with pytest.raises(BindError, match="invalid port: expected 0 to 65535"):
        asyncio.run(start(Listener("BAD", "127.0.0.1", 70_000)))


def test_metrics() -> None:
    async def scenario() -> None:
        metrics = Metrics()
        server = SocketServer([Listener("P", "127.0.0.1", 0)], Recorder(echo), Limits(), SystemClock(), metrics)
        await server.start()
        peer = await Peer.connect(server)
        await peer.send(frame(b"abc"))
        await peer.reply()
        shown = metrics.snapshot()
        assert shown["net_connections_open"] == 1
        assert shown["net_frames_in_total"] == 1
        assert (shown["net_bytes_in_total"], shown["net_bytes_out_total"]) == (7, 7)
        peer.close()
        await server.close()

    asyncio.run(scenario())


def test_stalled_requests_neither_take_all_memory_nor_delay_others(caplog: pytest.LogCaptureFixture) -> None:
    size, limit = 10_000_000, 24_000_000
    header = struct.pack(">hhih", 0, 9, 1, 5) + b"slow1" + b"\0"

    async def scenario() -> None:
        async with serving(Recorder(echo), Limits(queued_max_bytes=limit)) as server:
            before = resident_bytes()
            attackers = [await Peer.connect(server) for _ in range(10)]
            started = struct.pack(">i", size) + header + bytes(size - 1_000_000)
            sends = [asyncio.ensure_future(attacker.send(started)) for attacker in attackers]
            await until(lambda: len(server.memory.waiters) >= 8)
            good = await Peer.connect(server)
            for payload in (b"small", bytes(60_000), bytes(1_000_000)):
                await good.send(frame(payload))
                assert await good.reply() == payload
            # A request as large as the stalled ones gets its turn after some of them were dropped.
            late = await Peer.connect(server)
            late_send = asyncio.ensure_future(late.send(frame(bytes(size))))
            while not late_send.done() or server.memory.waiters:
                assert server.memory.held_bytes <= limit
                assert resident_bytes() - before < 60_000_000
                server.drop_stalled()
                await asyncio.sleep(0.001)
            await late_send
            assert await late.reply() == bytes(size)
            assert server.stalled_dropped >= 8
            await asyncio.gather(*sends, return_exceptions=True)
            for peer in [*attackers, good, late]:
                peer.close()
            await until(lambda: not server.connections)
            server.memory.trim()
            server.memory.trim()
            assert (server.memory.held_bytes, server.memory.holders, server.memory.waiters) == (0, set(), {})

    asyncio.run(scenario())
    assert "a PRODUCE v9 request of client 'slow1' of 10000000 bytes, of which it sent " in caplog.text
    assert "other requests wait for memory (queued.max.request.bytes=24000000)" in caplog.text


def test_requests_of_peers_that_do_not_read_give_their_memory_back() -> None:
    """The memory of a request must not be kept by a peer that leaves its earlier responses unread."""
    limit, started = 8_000_000, struct.pack(">i", 200_000) + bytes(100_000)

    async def scenario() -> None:
        recorder = Recorder()
        recorder.on_frame = recorder.defer
        async with serving(recorder, Limits(queued_max_bytes=limit)) as server:
            attackers = [await Peer.connect(server, receive_buffer=10_000) for _ in range(6)]
            for attacker in attackers:
                await attacker.send(frame(b"early") + started)
            await until(lambda: len(recorder.slots) == 6 and server.memory.held_bytes == 6 * LARGE_BYTES)
            for slot in recorder.slots:
                slot.send(frame(bytes(8_000_000)))
            assert not any(connection.waits_for_peer for connection in server.connections)
            for _ in range(MAX_SILENT_SECONDS + 5):
                server.drop_stalled()
            assert server.stalled_dropped == 0, "nobody waits for the memory"
            recorder.on_frame = echo
            good = await Peer.connect(server)
            send = asyncio.ensure_future(good.send(frame(bytes(1_000_000))))
            await until(lambda: server.memory.waiters)
            for _ in range(MAX_SLOW_SECONDS + 1):
                server.drop_stalled()
            await send
            assert await good.reply() == bytes(1_000_000)
            assert server.stalled_dropped == 1
            for peer in [*attackers, good]:
                peer.close()

    asyncio.run(scenario())


def test_a_burst_of_connections_waits_to_be_accepted() -> None:
    """A connection that does not fit into the backlog is retried after a second, and later after many seconds."""
    count = min(500, int(Path("/proc/sys/net/core/somaxconn").read_text()))

    async def scenario() -> None:
        async with serving(Recorder(echo)) as server:
            server.pause()
            peers = await asyncio.gather(*[Peer.connect(server) for _ in range(count)])
            assert not server.connections
            server.resume()
            for peer in peers:
                await peer.send(frame(b"hello"))
            assert [await peer.reply() for peer in peers] == [b"hello"] * count
            transport: Any = next(iter(server.connections))._transport
            option = transport.get_extra_info("socket").getsockopt
            assert option(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            for peer in peers:
                peer.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
