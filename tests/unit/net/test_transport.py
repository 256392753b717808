"""The transport with a scripted socket."""

import errno
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.net.doubles import FakeLoop

from headrace.net import transport
from headrace.net.transport import (
    HAND_OVER_BYTES,
    JOIN_BYTES,
    READS_PER_TURN,
    SMALL_SLICE_BYTES,
    TURN_BYTES,
    Part,
    PlainClientTransport,
    PlainTransport,
)

FD = 7


class FakeSocket:
    def __init__(self) -> None:
        self.inbox: list[bytes | OSError] = []
        self.out = bytearray()
        self.calls: list[tuple[int, int]] = []
        self.room: int | None = None
        self.error: OSError | None = None
        self.closed = False
        self.options: list[tuple[int, int, int]] = []

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options.append((level, option, value))

    def fileno(self) -> int:
        return FD

    def close(self) -> None:
        self.closed = True

    def shutdown(self, how: int) -> None:
        self.calls.append((how, -1))

    def recv_into(self, buffer: memoryview) -> int:
        if not self.inbox:
            raise BlockingIOError
        data = self.inbox.pop(0)
        if isinstance(data, OSError):
            raise data
        size = min(len(data), len(buffer))
        buffer[:size] = data[:size]
        if size < len(data):
            self.inbox.insert(0, data[size:])
        return size

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        sent = self.take(bytes(data))
        self.calls.append((sent, flags))
        return sent

    def take(self, data: bytes) -> int:
        if self.error is not None:
            raise self.error
        if self.room == 0:
            raise BlockingIOError
        size = len(data) if self.room is None else min(self.room, len(data))
        if self.room is not None:
            self.room -= size
        self.out += data[:size]
        return size


class FakeSlice:
    def __init__(self, sock: FakeSocket, data: bytes, missing: int = 0, largest: int = 1 << 30) -> None:
        self.sock = sock
        self.size = len(data)
        self.data = data[: self.size - missing]
        self.largest = largest
        self.calls = 0
        self.position = 0

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return -1

    def read(self) -> bytes:
        return self.data

    def send_to(self, fd: int, sent: int = 0, /) -> int:
        assert fd == FD
        self.calls += 1
        data = self.data[sent : sent + self.largest]
        return self.sock.take(data) if data else 0


class FakeProtocol:
    def __init__(self) -> None:
        self.received = bytearray()
        self.buffer = memoryview(bytearray(10))
        self.events: list[str] = []
        self.errors: list[Exception | None] = []
        self.keep_open = False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost")
        self.errors.append(error)


class Parts:
    """The transport with its socket, loop and protocol."""

    def __init__(self, transport_class: type[PlainTransport] = PlainTransport) -> None:
        self.loop = FakeLoop()
        self.sock = FakeSocket()
        self.protocol = FakeProtocol()
        loop: Any = self.loop
        sock: Any = self.sock
        self.transport = transport_class(loop, sock, self.protocol)

    def slice(self, data: bytes, **options: int) -> FakeSlice:
        return FakeSlice(self.sock, data, **options)

    def writable(self, room: int | None = None) -> None:
        self.sock.room = room
        self.loop.writers[FD]()


@pytest.fixture
def parts() -> Parts:
    return Parts()


class TestReading:
    def test_received_bytes_go_to_the_protocol(self, parts: Parts) -> None:
        parts.sock.inbox = [b"abc"]
        parts.transport.resume_reading()
        assert parts.transport.is_reading()
        parts.loop.readers[FD]()
        parts.loop.readers[FD]()
        assert parts.protocol.received == b"abc"

    def test_full_buffers_are_read_again(self, parts: Parts) -> None:
        parts.sock.inbox = [b"0123456789" * 10]
        parts.transport.resume_reading()
        parts.loop.readers[FD]()
        assert len(parts.protocol.received) == 10 * READS_PER_TURN

    def test_wake_at_waits_for_many_bytes(self, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transport, "_CAN_WAIT", True)
        parts.transport.wake_at(1000)
        assert parts.sock.options == [(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1000)]
        monkeypatch.setattr(transport, "_CAN_WAIT", False)
        parts.transport.wake_at(1)
        monkeypatch.setattr(transport, "_CAN_WAIT", True)
        parts.transport.abort()
        parts.transport.wake_at(1)
        assert len(parts.sock.options) == 1

    @pytest.mark.parametrize(
        ("platform", "release", "expected"),
        [
            ("linux", "4.18.0-553.el8", True),
            ("linux", "4.9.1", False),
            ("linux", "?", False),
            ("darwin", "23.1", False),
        ],
    )
    def test_wake_at_needs_kernel_support(
        self, monkeypatch: pytest.MonkeyPatch, platform: str, release: str, expected: bool
    ) -> None:
        monkeypatch.setattr("sys.platform", platform)
        monkeypatch.setattr("os.uname", lambda: SimpleNamespace(release=release))
        assert transport._can_wait() is expected

    def test_pause_and_resume_reading(self, parts: Parts) -> None:
        parts.transport.resume_reading()
        parts.transport.resume_reading()
        parts.transport.pause_reading()
        parts.transport.pause_reading()
        assert parts.loop.readers == {}
        assert not parts.transport.is_reading()

    @pytest.mark.parametrize("keep_open", [False, True])
    def test_end_of_stream(self, parts: Parts, keep_open: bool) -> None:
        parts.protocol.keep_open = keep_open
        parts.sock.inbox = [b""]
        parts.transport.resume_reading()
        parts.loop.readers[FD]()
        assert parts.loop.readers == {}, "otherwise it would be readable for ever"
        assert parts.sock.closed is not keep_open
        parts.loop.run()
        assert parts.protocol.events == (["eof"] if keep_open else ["eof", "lost"])

    def test_connection_reset(self, parts: Parts) -> None:
        reset = ConnectionResetError(errno.ECONNRESET, "reset")
        parts.sock.inbox = [reset]
        parts.transport.resume_reading()
        parts.loop.readers[FD]()
        assert parts.protocol.events == [], "not from within the read"
        parts.loop.run()
        assert parts.protocol.errors == [reset]
        assert parts.sock.closed


class TestSendingBytes:
    @pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda data: [data[:2], b"", data[2:]]])
    def test_sends_at_once(self, parts: Parts, make: Any) -> None:
        parts.transport.send(make(b"abcde"))
        assert parts.sock.out == b"abcde"
        assert len(parts.sock.calls) == 1
        assert parts.protocol.events == []
        assert parts.transport.pending_bytes == 0

    @pytest.mark.parametrize("make", [bytes, bytearray, lambda data: [data[:2], data[2:]]])
    @pytest.mark.parametrize("room", [0, 1, 3, 4])
    def test_unsent_bytes_follow(self, parts: Parts, make: Any, room: int) -> None:
        parts.sock.room = room
        parts.transport.send(make(b"abcde"))
        assert (parts.transport.pending_bytes, parts.protocol.events) == (5 - room, ["pause"])
        parts.writable(0)
        assert parts.transport.pending_bytes == 5 - room
        while parts.transport.pending_bytes:
            parts.writable(1)
        assert parts.sock.out == b"abcde"
        assert parts.protocol.events == ["pause", "resume"]
        assert parts.loop.writers == {}

    def test_large_part_is_not_joined(self, parts: Parts) -> None:
        large = bytes(JOIN_BYTES)
        parts.transport.send([b"head", large, b"tail"])
        assert parts.sock.out == b"head" + large + b"tail"
        assert [size for size, _ in parts.sock.calls] == [4, JOIN_BYTES, 4]

    def test_empty_list_sends_nothing(self, parts: Parts) -> None:
        parts.transport.send([])
        parts.transport.send([b"", b""])
        assert (parts.sock.calls, parts.protocol.events) == ([], [])


class TestSendingSlices:
    LARGE = bytes(range(256)) * 1024

    def test_slices_between_bytes(self, parts: Parts) -> None:
        part = parts.slice(self.LARGE)
        parts.transport.send([b"head", part, b"tail"])
        assert parts.sock.out == b"head" + self.LARGE + b"tail"
        assert parts.sock.calls == [(4, socket.MSG_MORE), (4, 0)], "the start is not sent alone"
        assert part.calls == 1

    def test_small_slices_are_read_and_joined(self, parts: Parts) -> None:
        small = bytes(1000)
        parts.transport.send([b"a", parts.slice(small), b"b", parts.slice(small), b"c"])
        assert parts.sock.out == b"a" + small + b"b" + small + b"c"
        assert len(parts.sock.calls) == 1

    def test_joining_has_a_limit(self, parts: Parts) -> None:
        """Many small slices are not read at once, because the peer may be slow."""
        small = bytes(SMALL_SLICE_BYTES)
        slices = [parts.slice(small) for _ in range(10)]
        parts.sock.room = 0
        parts.transport.send(slices)
        assert parts.transport.pending_bytes == 10 * SMALL_SLICE_BYTES
        parts.writable()
        assert bytes(parts.sock.out) == small * 10
        assert max(size for size, _ in parts.sock.calls) <= JOIN_BYTES

    @pytest.mark.parametrize("step", [1, 1000, 4096, 300_000])
    def test_slice_is_sent_in_pieces(self, parts: Parts, step: int) -> None:
        parts.sock.room = 0
        data = self.LARGE if step > 1 else self.LARGE[: SMALL_SLICE_BYTES + 10]
        parts.transport.send([b"head", parts.slice(data), parts.slice(data, largest=step), b"tail"])
        turns = 0
        while parts.transport.pending_bytes:
            parts.writable(step)
            turns += 1
        assert parts.sock.out == b"head" + data + data + b"tail"
        assert turns >= 2 * len(data) // step
        assert parts.protocol.events == ["pause", "resume"]

    def test_sending_yields_after_its_turn(self, parts: Parts) -> None:
        data = bytes(3 * TURN_BYTES)
        part = parts.slice(data, largest=100_000)
        parts.transport.send([part])
        assert TURN_BYTES <= len(parts.sock.out) < TURN_BYTES + 100_000
        assert parts.protocol.events == ["pause"]
        while parts.loop.writers:
            parts.writable()
        assert parts.sock.out == data

    @pytest.mark.parametrize("size", [100, 300_000])
    def test_short_file_closes_the_connection(self, parts: Parts, size: int, caplog: pytest.LogCaptureFixture) -> None:
        parts.transport.send([b"head", parts.slice(bytes(size), missing=10), b"tail"])
        assert parts.sock.closed
        assert b"tail" not in parts.sock.out
        assert "sending a response failed midway: a file" in caplog.text
        parts.loop.run()
        assert parts.protocol.events == ["lost"]

    def test_failing_slice_closes_the_connection(self, parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
        class Broken(FakeSlice):
            def send_to(self, fd: int, sent: int = 0, /) -> int:
                raise ValueError("broken")

        parts.transport.send([b"head", Broken(parts.sock, self.LARGE)])
        assert parts.sock.closed
        assert "ValueError: broken" in caplog.text

    @pytest.mark.parametrize("code", [errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT])
    @pytest.mark.parametrize("kind", ["bytes", "list", "slice", "later"])
    def test_lost_peer_is_not_logged(
        self, parts: Parts, code: int, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        error = OSError(code, "gone")
        if kind == "later":
            parts.sock.room = 1
        else:
            parts.sock.error = error
        parts.transport.send({"bytes": b"ab", "list": [b"ab"], "slice": [parts.slice(self.LARGE)]}.get(kind, b"ab"))
        if kind == "later":
            parts.sock.error = error
            parts.writable()
        assert parts.sock.closed
        parts.transport.send(b"more")
        parts.loop.run()
        assert parts.protocol.errors == [error]
        assert (parts.loop.readers, parts.loop.writers) == ({}, {})
        assert caplog.text == ""

    def test_disk_failure_is_logged(self, parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
        parts.sock.error = OSError(errno.EIO, "disk")
        parts.transport.send([parts.slice(self.LARGE)])
        assert "disk" in caplog.text
        assert parts.sock.closed


class TestClientTransport:
    """After a failed write the bytes that have arrived are delivered."""

    ERROR = BrokenPipeError(errno.EPIPE, "gone")

    @pytest.fixture
    def parts(self) -> Parts:
        return Parts(PlainClientTransport)

    def fail(self, parts: Parts, kind: str) -> None:
        parts.transport.resume_reading()
        if kind == "later":
            parts.sock.room = 1
            parts.transport.send(b"request")
            parts.sock.error = self.ERROR
            parts.writable()
        else:
            parts.sock.error = self.ERROR
            parts.transport.send(b"request" if kind == "bytes" else [b"request"])

    @pytest.mark.parametrize("kind", ["bytes", "list", "later"])
    @pytest.mark.parametrize("end", [[], [b""], [ConnectionResetError(errno.ECONNRESET, "reset")]])
    def test_reads_the_rest(self, parts: Parts, kind: str, end: list[bytes | OSError]) -> None:
        responses = b"0123456789" * 2 * READS_PER_TURN + b"01"
        parts.sock.inbox = [responses, *end]
        self.fail(parts, kind)
        assert parts.protocol.received == b"", "not from within the write"
        assert (parts.protocol.events[-1], parts.transport.pending_bytes) == ("pause", 0)
        parts.loop.run()
        assert parts.protocol.received == responses
        assert (parts.protocol.events[-1], parts.protocol.errors, parts.sock.closed) == ("lost", [self.ERROR], True)
        assert (parts.loop.readers, parts.loop.writers) == ({}, {})

    def test_protocol_may_abort_meanwhile(self, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
        parts.sock.inbox = [b"0123456789", b"more"]
        monkeypatch.setattr(parts.protocol, "buffer_updated", lambda _: parts.transport.abort())
        self.fail(parts, "bytes")
        parts.loop.run()
        assert (parts.sock.inbox, parts.protocol.errors) == ([b"more"], [None])

    def test_end_of_stream_may_come_first(self, parts: Parts) -> None:
        parts.sock.inbox = [b""]
        self.fail(parts, "bytes")
        parts.loop.readers[FD]()
        parts.loop.run()
        assert (parts.protocol.events, parts.protocol.errors) == (["pause", "eof", "lost"], [None])

    def test_drops_at_once_if_it_does_not_read(self, parts: Parts) -> None:
        parts.sock.inbox = [b"abc"]
        parts.sock.error = self.ERROR
        parts.transport.send(b"request")
        assert parts.sock.closed
        parts.loop.run()
        assert (parts.protocol.received, parts.protocol.errors) == (b"", [self.ERROR])


class FakeSenders:
    def __init__(self) -> None:
        self.idle = 1
        self.jobs: list[tuple[int, list[Part], int]] = []
        self.done: Callable[[int, int], None]

    def submit(self, fd: int, parts: list[Part], sent_of_first: int, on_done: Callable[[int, int], None]) -> None:
        self.idle -= 1
        self.jobs.append((fd, parts, sent_of_first))
        self.done = on_done


class TestSenderThreads:
    @pytest.fixture
    def senders(self, parts: Parts) -> FakeSenders:
        senders = FakeSenders()
        parts.transport._senders = senders
        return senders

    def send_large(self, parts: Parts, size: int = HAND_OVER_BYTES + 100) -> bytes:
        data = bytes(size)
        parts.sock.room = 100
        parts.transport.send([b"start", parts.slice(data), b"end"])
        return data

    def test_a_thread_sends_the_rest_of_a_large_frame(self, parts: Parts, senders: FakeSenders) -> None:
        data = self.send_large(parts)
        fd, remaining, sent = senders.jobs[0]
        assert (fd, [len(part) for part in remaining], sent) == (FD, [len(data), 3], 95)
        assert parts.loop.writers == {}
        assert parts.protocol.events == ["pause"]
        senders.done(len(data) - 95 + 3, 0)
        assert (parts.protocol.events, parts.transport.pending_bytes) == (["pause", "resume"], 0)

    @pytest.mark.parametrize("case", ["small", "no idle thread"])
    def test_the_loop_sends_otherwise(self, parts: Parts, senders: FakeSenders, case: str) -> None:
        if case == "small":
            self.send_large(parts, HAND_OVER_BYTES)
        else:
            senders.idle = 0
            self.send_large(parts)
        assert senders.jobs == []
        parts.writable()
        assert parts.protocol.events == ["pause", "resume"]

    def test_the_loop_hands_over_later(self, parts: Parts, senders: FakeSenders) -> None:
        senders.idle = 0
        self.send_large(parts, 2 * HAND_OVER_BYTES)
        senders.idle = 1
        parts.writable(10)
        assert senders.jobs[0][2] == 105
        assert parts.loop.writers == {}
        assert parts.protocol.events == ["pause"]

    def test_the_loop_continues_after_a_slow_peer(self, parts: Parts, senders: FakeSenders) -> None:
        data = self.send_large(parts)
        senders.done(1000, 0)
        assert parts.transport.pending_bytes == len(data) + 3 - 95 - 1000
        parts.writable()
        assert len(parts.sock.out) == 100 + len(data) + 3 - 95 - 1000
        assert parts.protocol.events == ["pause", "resume"]

    def test_errors_close_the_connection(
        self, parts: Parts, senders: FakeSenders, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.send_large(parts)
        senders.done(1000, errno.ECONNRESET)
        parts.loop.run()
        assert (parts.protocol.events, parts.sock.closed, caplog.text) == (["pause", "lost"], True, "")

    def test_short_file_closes_the_connection(
        self, parts: Parts, senders: FakeSenders, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.send_large(parts)
        senders.done(1000, errno.ENODATA)
        assert "a file ended" in caplog.text
        assert parts.sock.closed

    def test_the_descriptor_stays_open_while_a_thread_uses_it(self, parts: Parts, senders: FakeSenders) -> None:
        self.send_large(parts)
        parts.transport.abort()
        assert (parts.sock.closed, parts.sock.calls[-1]) == (False, (socket.SHUT_RDWR, -1))
        senders.done(0, errno.EPIPE)
        assert parts.sock.closed
        parts.loop.run()
        assert parts.protocol.events == ["pause", "lost"]

    def test_the_socket_is_closed_if_no_thread_can_start(
        self, parts: Parts, senders: FakeSenders, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(senders, "submit", fail)
        with pytest.raises(RuntimeError):
            self.send_large(parts)
        parts.transport.abort()
        assert parts.sock.closed

    def test_close_waits_for_the_thread(self, parts: Parts, senders: FakeSenders) -> None:
        data = self.send_large(parts)
        parts.transport.close()
        assert not parts.sock.closed
        senders.done(len(data) - 95 + 3, 0)
        assert parts.sock.closed


class TestClosing:
    def test_close_sends_pending_bytes(self, parts: Parts) -> None:
        parts.transport.resume_reading()
        parts.sock.room = 2
        parts.transport.send(b"abcde")
        parts.transport.close()
        parts.transport.close()
        assert (parts.sock.closed, parts.transport.is_closing()) == (False, True)
        parts.transport.resume_reading()
        assert parts.loop.readers == {}
        parts.writable()
        assert (parts.sock.out, parts.sock.closed) == (b"abcde", True)
        parts.loop.run()
        assert parts.protocol.events == ["pause", "lost"]

    def test_abort_drops_pending_bytes(self, parts: Parts) -> None:
        parts.transport.resume_reading()
        parts.sock.room = 2
        parts.transport.send(b"abcde")
        parts.transport.abort()
        parts.transport.abort()
        parts.transport.close()
        assert (parts.sock.out, parts.sock.closed) == (b"ab", True)
        assert (parts.loop.readers, parts.loop.writers, parts.transport.pending_bytes) == ({}, {}, 0)
        parts.loop.run()
        assert parts.protocol.events == ["pause", "lost"]

    def test_abort_after_close(self, parts: Parts) -> None:
        parts.sock.room = 2
        parts.transport.send(b"abcde")
        parts.transport.close()
        parts.transport.abort()
        parts.loop.run()
        assert parts.sock.closed
        assert parts.protocol.events == ["pause", "lost"]
