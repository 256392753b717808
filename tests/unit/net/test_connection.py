import logging
import struct

import pytest
from tests.support.net.doubles import Recorder, Wired, echo, frame

from headrace.net import Limits, ServerConnection
from headrace.net.connection import ResponseError


def test_frames_reach_the_handler_and_responses_the_peer() -> None:
    handler = Recorder(echo)
    wired = Wired(handler)
    wired.receive(frame(b"one"))
    wired.receive(frame(b"two") + frame(b"three") + frame(b"fo"))
    assert handler.frames == [b"one", b"two", b"three", b"fo"]
    assert wired.transport.sent == frame(b"one") + frame(b"two") + frame(b"three") + frame(b"fo")
    assert (wired.server.frames_in, wired.server.bytes_in, wired.server.bytes_out) == (4, 29, 29)
    assert handler.made == [wired.connection]


def test_responses_to_pipelined_requests_are_sent_together() -> None:
    wired = Wired(Recorder(echo))
    wired.receive(b"".join(frame(b"%d" % number) for number in range(10)))
    assert len(wired.transport.sends) == 2, "the first response at once, the others together"


def test_responses_are_sent_in_request_order() -> None:
    handler = Recorder()
    handler.on_frame = handler.defer
    wired = Wired(handler)
    wired.receive(b"".join(frame(b"%d" % number) for number in range(6)))
    slots = handler.slots
    for number in (3, 1, 2):
        slots[number].send(b"%d" % number)
    assert wired.transport.sent == b""
    slots[0].send(b"0")
    assert wired.transport.sent == b"0123"
    slots[5].send([b"5", b"five"])
    slots[4].send(b"4")
    assert wired.transport.sent == b"012345five"
    assert wired.connection.responses_due == 0


def test_late_and_immediate_responses() -> None:
    handler = Recorder()
    handler.on_frame = handler.defer
    wired = Wired(handler)
    wired.receive(frame(b"late"))
    handler.on_frame = echo
    wired.receive(frame(b"soon"))
    assert wired.transport.sent == b""
    handler.slots[0].send(b"late")
    assert wired.transport.sent == b"late" + frame(b"soon")


@pytest.mark.parametrize("others", [0, 1])
def test_response_is_sent_once(others: int) -> None:
    handler = Recorder()
    handler.on_frame = handler.defer
    wired = Wired(handler)
    for _ in range(1 + others):
        wired.receive(frame(b"x"))
    slot = handler.slots[-1]
    assert not slot.answered
    slot.send(b"1")
    assert slot.answered
    with pytest.raises(ResponseError, match=r"10\.0\.0\.1:5000 on PLAINTEXT got a second response"):
        slot.send(b"2")
    with pytest.raises(ResponseError):
        slot.discard()
    for first in handler.slots[:-1]:
        first.send(b"0")
    assert wired.transport.sent == b"01"[1 - others :]


def test_several_discarded_responses_send_nothing() -> None:
    handler = Recorder()
    handler.on_frame = handler.defer
    wired = Wired(handler)
    wired.receive(frame(b"a") + frame(b"b"))
    handler.slots[1].discard()
    handler.slots[0].discard()
    assert (wired.transport.sends, wired.connection.responses_due) == ([], 0)


def test_discarded_response_lets_the_next_pass() -> None:
    handler = Recorder()
    handler.on_frame = handler.defer
    wired = Wired(handler)
    wired.receive(frame(b"a") + frame(b"b") + frame(b"c"))
    handler.slots[1].send(b"B")
    handler.slots[0].discard()
    assert wired.transport.sent == b"B"
    handler.slots[2].discard()
    assert (wired.transport.sent, wired.connection.responses_due) == (b"B", 0)


def test_request_without_response() -> None:
    handler = Recorder()
    wired = Wired(handler)
    wired.receive(frame(b"a") + frame(b"b"))
    assert (len(handler.frames), wired.transport.sends) == (2, [])


class TestMaxInFlight:
    LIMITS = Limits(max_in_flight=4)

    def test_reading_pauses_and_resumes_at_half(self) -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        wired = Wired(handler, self.LIMITS)
        for number in range(5):
            wired.receive(frame(b"%d" % number))
        assert not wired.transport.reading
        for number in range(2):
            handler.slots[number].send(b"r")
            wired.loop.run()
            assert not wired.transport.reading, f"{4 - number} responses are outstanding"
        handler.slots[2].send(b"r")
        wired.loop.run()
        assert wired.transport.reading

    def test_received_frames_wait(self) -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        wired = Wired(handler, self.LIMITS)
        payloads = [b"%d" % number * 50 for number in range(12)]
        stream = b"".join(map(frame, payloads))
        wired.receive(stream[:-10])
        assert len(handler.frames) == 5
        sent = 0
        while not wired.transport.reading:
            handler.slots[sent].send(b"r")
            sent += 1
            wired.loop.run()
            assert len(handler.frames) - sent <= 5
        wired.receive(stream[-10:])
        for slot in handler.slots[sent:]:
            slot.send(b"r")
        assert handler.frames == payloads
        assert wired.transport.sent == b"r" * 12

    def test_responses_from_within_the_handler(self) -> None:
        """A response that resumes reading while a frame is handled must not handle another frame recursively."""
        handler = Recorder()
        depth = 0

        def on_frame(connection: ServerConnection, payload: bytes) -> None:
            nonlocal depth
            assert depth == 0
            depth += 1
            handler.defer(connection, payload)
            if len(handler.slots) == 5:
                for slot in handler.slots[:4]:
                    slot.send(b"r")
            depth -= 1

        handler.on_frame = on_frame
        wired = Wired(handler, self.LIMITS)
        wired.receive(b"".join(frame(b"%d" % number) for number in range(9)))
        wired.loop.run()
        assert len(handler.frames) == 9
        assert wired.transport.sent == b"rrrr"


class TestSlowReader:
    LIMITS = Limits(max_queued_bytes=1000)

    def test_responses_wait_for_the_socket(self) -> None:
        wired = Wired(Recorder(echo), self.LIMITS)
        wired.transport.full = True
        wired.receive(frame(b"one"))
        wired.receive(frame(b"two"))
        assert wired.transport.sent == frame(b"one")
        wired.transport.full = False
        wired.transport.let_go()
        assert wired.transport.sent == frame(b"one") + frame(b"two")
        assert wired.transport.reading

    def test_reading_pauses_and_resumes_at_half(self) -> None:
        handler = Recorder(echo)
        wired = Wired(handler, self.LIMITS)
        wired.transport.full = True
        wired.receive(frame(bytes(396)))
        wired.receive(frame(bytes(396)))
        assert wired.transport.reading
        wired.receive(frame(bytes(396)))
        assert not wired.transport.reading
        wired.transport.let_go()  # one is sent, the two others go to the socket together
        wired.loop.run()
        assert not wired.transport.reading
        wired.transport.let_go()
        wired.loop.run()
        assert wired.transport.reading

    def test_one_large_response_pauses_reading(self) -> None:
        wired = Wired(Recorder(echo), self.LIMITS)
        wired.transport.full = True
        wired.receive(frame(bytes(2000)))
        assert not wired.transport.reading
        wired.transport.let_go()
        wired.loop.run()
        assert wired.transport.reading


def test_limits_frames_per_turn() -> None:
    handler = Recorder(echo)
    wired = Wired(handler, Limits(max_frames_per_turn=10))
    payloads = [b"%d" % number for number in range(35)]
    wired.receive(b"".join(map(frame, payloads)))
    counts = [len(handler.frames)]
    while wired.loop.soon:
        wired.loop.turn()
        counts.append(len(handler.frames))
    assert sorted(set(counts)) == [10, 20, 30, 35]
    assert wired.transport.sent == b"".join(map(frame, payloads))
    assert wired.transport.reading


def test_slow_frames_yield_to_other_connections() -> None:
    handler = Recorder()
    wired = Wired(handler)

    def dear(connection: ServerConnection, payload: bytes) -> None:
        wired.loop.now += 0.5
        echo(connection, payload)

    handler.on_frame = dear
    wired.receive(frame(b"a") + frame(b"b") + frame(b"c"))
    assert handler.frames == [b"a"]
    wired.loop.run()
    assert handler.frames == [b"a", b"b", b"c"]
    assert wired.transport.sent == frame(b"a") + frame(b"b") + frame(b"c")


class TestClosing:
    def test_handler_closes_the_connection(self) -> None:
        handler = Recorder()
        handler.on_frame = lambda connection, payload: connection.close("enough")
        wired = Wired(handler)
        wired.receive(frame(b"a") + frame(b"b") + frame(b"c"))
        assert handler.frames == [b"a"], "no frame is handled after close"
        assert wired.connection.closed
        assert handler.lost == [], "not from within the handler"
        wired.connection.close("again")
        wired.loop.run()
        assert handler.lost == [(wired.connection, None)]
        assert wired.server.lost == [wired.connection]

    def test_responses_after_close_are_dropped(self) -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        wired = Wired(handler)
        wired.receive(frame(b"a") + frame(b"b"))
        wired.connection.close("enough")
        handler.slots[1].send(b"B")
        handler.slots[0].send(b"A")
        with pytest.raises(ResponseError):
            handler.slots[0].send(b"A")
        assert wired.transport.sent == b""

    def test_memory_is_returned(self) -> None:
        wired = Wired(Recorder())
        wired.receive(frame(bytes(1_000_000))[:500_000])
        assert wired.server.memory.held_bytes > 0
        wired.connection.close("enough")
        assert wired.server.memory.held_bytes == 0

    def test_handler_failure_closes_the_connection(self, caplog: pytest.LogCaptureFixture) -> None:
        for data in (frame(b"a"), frame(b"a") + frame(b"b")):
            handler = Recorder()
            handler.on_frame = lambda connection, payload: 1 / 0
            wired = Wired(handler)
            wired.receive(data)
            assert wired.connection.closed
            assert handler.frames == [b"a"]
        assert caplog.text.count("ZeroDivisionError") == 2
        assert "Connection 10.0.0.1:5000 on PLAINTEXT: closed because handling its request failed" in caplog.text

    def test_handler_failure_refuses_a_new_connection(self, caplog: pytest.LogCaptureFixture) -> None:
        class Refuses(Recorder):
            def connection_made(self, connection: ServerConnection) -> None:
                raise ValueError("no")

        handler = Refuses()
        wired = Wired(handler)
        assert (wired.connection.closed, wired.transport.reading) == (True, False)
        assert "Connection 10.0.0.1:5000 on PLAINTEXT: refused because its setup failed" in caplog.text

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (struct.pack(">i", 0), "a frame of 0 bytes"),
            (struct.pack(">i", -5), "a frame of -5 bytes"),
            (struct.pack(">i", 1_000_001), "a frame of 1000001 bytes, larger than socket.request.max.bytes (1000000)"),
            (b"GET / HTTP/1.1\r\n\r\n", "this looks like an HTTP request"),
        ],
    )
    def test_invalid_frames_close_the_connection(
        self, data: bytes, reason: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        handler = Recorder(echo)
        wired = Wired(handler, Limits(request_max_bytes=1_000_000))
        wired.receive(frame(b"good") + data)
        assert wired.connection.closed
        assert handler.frames == [b"good"]
        assert f"Connection 10.0.0.1:5000 on PLAINTEXT: closed because of an invalid frame: {reason}" in caplog.text
        assert wired.server.invalid_frames == 1

    def test_finish_sends_outstanding_responses(self) -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        wired = Wired(handler)
        wired.receive(frame(b"a") + frame(b"b"))
        wired.connection.finish("no more")
        assert not wired.transport.reading
        handler.slots[1].send(b"B")
        assert not wired.transport.closing
        handler.slots[0].send(b"A")
        assert (wired.transport.sent, wired.transport.closing) == (b"AB", True)

    def test_finish_without_outstanding_responses(self) -> None:
        wired = Wired(Recorder(echo))
        wired.receive(frame(b"a"))
        wired.connection.finish("no more")
        assert wired.transport.closing

    def test_half_closed_peer_receives_its_responses(self) -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        wired = Wired(handler)
        wired.receive(frame(b"a"))
        assert wired.connection.eof_received()
        assert not wired.transport.closing
        handler.slots[0].send(b"A")
        assert (wired.transport.sent, wired.transport.closing) == (b"A", True)

    def test_half_closed_peer_is_closed_after_lingering(self) -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        wired = Wired(handler)
        wired.receive(frame(b"a") + frame(b"b"))
        wired.connection.eof_received()
        handler.slots[1].send(b"B")
        wired.loop.time_passes()
        assert wired.connection.closed
        wired.loop.run()
        assert handler.lost == [(wired.connection, None)]

    def test_half_closed_slow_reader_is_closed_after_lingering(self) -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        wired = Wired(handler)
        wired.receive(frame(b"a") + frame(b"b") + frame(b"c"))
        wired.transport.full = True
        handler.slots[0].send(b"A")
        handler.slots[1].send(b"B")
        wired.connection.eof_received()
        wired.loop.time_passes()
        assert not wired.connection.closed
        wired.transport.full = False
        wired.transport.let_go()
        wired.loop.time_passes()
        assert wired.transport.sent == b"AB"
        assert wired.connection.closed

    def test_half_closed_peer_may_read_slowly(self) -> None:
        wired = Wired(Recorder(echo))
        wired.transport.full = True
        wired.receive(frame(b"a"))
        wired.receive(frame(b"b"))
        wired.connection.eof_received()
        wired.loop.time_passes()
        assert not wired.connection.closed
        wired.transport.full = False
        wired.transport.let_go()
        assert (wired.transport.sent, wired.transport.closing) == (frame(b"a") + frame(b"b"), True)


class TestIdleTime:
    def test_idle_time_counts_from_the_last_activity(self) -> None:
        wired = Wired(Recorder(echo))
        assert wired.connection.idle_seconds(10) == 0
        assert wired.connection.idle_seconds(15) == 5
        wired.receive(frame(b"a"))
        assert wired.connection.idle_seconds(20) == 0
        assert wired.connection.idle_seconds(27) == 7

    def test_waiting_for_the_server_is_not_idle(self) -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        wired = Wired(handler)
        wired.receive(frame(b"a"))
        for now in (10, 20, 30):
            assert wired.connection.idle_seconds(now) == 0
        handler.slots[0].send(b"A")
        assert wired.connection.idle_seconds(40) == 10

    def test_slow_reader_is_not_idle_but_stalled_reader_is(self) -> None:
        wired = Wired(Recorder(echo))
        wired.transport.full = True
        wired.receive(frame(bytes(1000)))
        assert wired.connection.idle_seconds(10) == 0
        wired.transport.pending_bytes -= 1
        assert wired.connection.idle_seconds(20) == 0
        assert wired.connection.idle_seconds(30) == 10


class TestPausedByTheServer:
    def test_nothing_is_handled_while_paused(self) -> None:
        handler = Recorder()
        handler.on_frame = lambda connection, payload: connection.hold_reading()
        wired = Wired(handler)
        wired.receive(frame(b"a") + frame(b"b") + frame(b"c")[:3])
        assert handler.frames == [b"a"]
        handler.on_frame = echo
        wired.connection.resume_held_reading()
        wired.loop.run()
        wired.receive(frame(b"c")[3:])
        assert handler.frames == [b"a", b"b", b"c"]

    def test_partial_frame_survives_a_pause(self) -> None:
        handler = Recorder(echo)
        wired, other = Wired(handler), Recorder(echo)
        data = frame(b"abcdefgh")
        wired.receive(data[:7])
        wired.connection.hold_reading()
        neighbour = Wired(other)
        neighbour.server.memory.scratch[:] = bytes(len(neighbour.server.memory.scratch))
        wired.server.memory.scratch[:] = b"\xff" * len(wired.server.memory.scratch)
        wired.connection.resume_held_reading()
        wired.loop.run()
        wired.receive(data[7:])
        assert handler.frames == [b"abcdefgh"]

    def test_server_is_notified_when_all_responses_are_sent(self) -> None:
        handler = Recorder()
        handler.on_frame = handler.defer
        wired = Wired(handler)
        wired.receive(frame(b"a") + frame(b"b"))
        wired.connection.hold_reading()
        wired.transport.full = True
        handler.slots[0].send(b"A")
        handler.slots[1].send(b"B")
        assert not wired.connection.quiet
        wired.transport.let_go()
        assert wired.server.quiet == []
        wired.transport.let_go()
        assert wired.server.quiet == [wired.connection]
        assert wired.connection.quiet


def test_handler_holds_back_further_requests() -> None:
    held: list[ServerConnection] = []

    def hold_first(connection: ServerConnection, payload: bytes) -> None:
        if payload == b"first":
            connection.hold_requests(1000)
            held.append(connection)

    handler = Recorder(hold_first)
    wired = Wired(handler)
    wired.receive(frame(b"first") + frame(b"second"))
    assert handler.frames == [b"first"]
    assert not wired.transport.reading
    carried = wired.server.memory.held_bytes
    assert carried >= 1000
    held[0].release_requests(1000)
    wired.loop.run()
    assert handler.frames == [b"first", b"second"]
    assert wired.transport.reading
    wired.connection.close("test")
    assert wired.server.memory.held_bytes == 0
