"""Stopping cleanly, and pausing."""

import asyncio
import os
import socket
import struct
from pathlib import Path

import pytest
from tests.support.net.doubles import FileSlice, Peer, Recorder, echo, frame, serving, until


def test_drain_sends_outstanding_responses(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(20_000_000))

    async def scenario(fd: int) -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        async with serving(handler) as server:
            port = server.endpoints[0].port
            late, slow, idle = [await Peer.connect(server) for _ in range(3)]
            await late.send(frame(b"late"))
            await slow.send(frame(b"slow"))
            await until(lambda: len(handler.slots) == 2)
            slots = dict(zip(handler.frames, handler.slots, strict=True))
            slots[b"slow"].send([struct.pack(">i", 20_000_000), FileSlice(fd, 0, 20_000_000)])

            server.stop_accepting()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            draining = asyncio.create_task(server.drain(30))
            await late.send(frame(b"too late"))
            await asyncio.sleep(0)
            assert not draining.done()
            slots[b"late"].send(frame(b"answer"))
            assert await late.reply() == b"answer"
            assert await slow.reply() == path.read_bytes()
            assert await draining
            assert len(handler.frames) == 2, "no new request is handled"
            await server.close()
            for peer in (late, slow, idle):
                assert await peer.ended()
                peer.close()
        assert len(handler.lost) == 3

    fd = os.open(path, os.O_RDONLY)
    try:
        asyncio.run(scenario(fd))
    finally:
        os.close(fd)


def test_drain_times_out(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        async with serving(handler) as server:
            peers = [await Peer.connect(server) for _ in range(2)]
            for peer in peers:
                await peer.send(frame(b"x"))
            await until(lambda: len(handler.slots) == 2)
            handler.slots[0].send(frame(b"x"))
            assert not await server.drain(0.01)
            for peer in peers:
                peer.close()

    asyncio.run(scenario())
    assert "1 connections still have unsent responses" in caplog.text


def test_drain_does_not_wait_for_lost_peers() -> None:
    async def scenario() -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        async with serving(handler) as server:
            peer = await Peer.connect(server)
            await peer.send(frame(b"x"))
            await until(lambda: handler.slots)
            draining = asyncio.create_task(server.drain(30))
            await asyncio.sleep(0)
            handler.made[0].close("a test")
            assert await draining
            peer.close()

    asyncio.run(scenario())


def test_close_without_connections() -> None:
    async def scenario() -> None:
        async with serving(Recorder()) as server:
            assert await server.drain(1)
            await server.close()

    asyncio.run(scenario())


def test_pause_and_resume() -> None:
    async def scenario() -> None:
        handler = Recorder(echo)
        async with serving(handler) as server:
            old = await Peer.connect(server)
            await old.send(frame(b"1"))
            assert await old.reply() == b"1"
            server.pause()
            new = await Peer.connect(server)  # the kernel accepts it, the server does not
            await old.send(frame(b"2"))
            await new.send(frame(b"3"))
            for _ in range(20):
                await asyncio.sleep(0)
            server.close_idle()
            assert (handler.frames, server.connections_open) == ([b"1"], 1)
            server.resume()
            server.resume()
            assert await old.reply() == b"2"
            assert await new.reply() == b"3"
            old.close()
            new.close()

    asyncio.run(scenario())


def test_handler_failure_closes_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        handler = Recorder()
        handler.on_frame = lambda connection, payload: 1 / 0
        async with serving(handler) as server:
            bad, good = await Peer.connect(server), await Peer.connect(server)
            await bad.send(frame(b"x"))
            assert await bad.ended()
            handler.on_frame = echo
            await good.send(frame(b"y"))
            assert await good.reply() == b"y"
            bad.close()
            good.close()

    asyncio.run(scenario())
    assert "ZeroDivisionError" in caplog.text
