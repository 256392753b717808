"""Frames of any size, split anywhere, on alternating connections, compared with the list of sent frames."""

import struct
from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.support.net.doubles import Recorder, Wired, frame, read_all

from headrace.net import Limits, ServerConnection
from headrace.net.framing import CARRY_BYTES, SCRATCH_BYTES, FrameReader, InvalidFrameError, ReceiveMemory

SIZES = st.one_of(
    st.integers(1, 200),
    st.integers(CARRY_BYTES - 10, CARRY_BYTES + 10),
    st.integers(SCRATCH_BYTES - 10, SCRATCH_BYTES + 10),
    st.integers(1, 2_000_000),
)
CUTS = st.one_of(st.integers(1, 10), st.integers(1, 100_000), st.just(3_000_000))


def payload(size: int, seed: int) -> bytes:
    return (struct.pack(">II", seed, size) * (size // 8 + 1))[:size]


@given(
    st.lists(st.lists(st.tuples(SIZES, CUTS), max_size=4), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_every_frame_is_returned_once_complete_and_in_order(
    connections: list[list[tuple[int, int]]], random: Random
) -> None:
    memory = ReceiveMemory(10_000_000, keep_bytes=3_000_000)
    readers = [FrameReader(memory) for _ in connections]
    sent = [[payload(size, seed) for seed, (size, _) in enumerate(plan)] for plan in connections]
    streams = [b"".join(map(frame, payloads)) for payloads in sent]
    cuts = [[cut for _, cut in plan] for plan in connections]
    received: list[list[bytes]] = [[] for _ in connections]
    while any(streams):
        number = random.choice([number for number, stream in enumerate(streams) if stream])
        stream = streams[number]
        # Not so small that a long stream takes too long.
        cut = max(random.choice(cuts[number]), len(stream) // 50)
        received[number] += read_all(readers[number], [stream[:cut]])
        streams[number] = stream[cut:]
        if random.random() < 0.1:
            memory.trim()
    assert received == sent
    for reader in readers:
        assert reader.buffered_bytes == 0
        reader.close()
    assert memory.held_bytes == 0


@given(st.lists(st.binary(max_size=40)))
def test_any_bytes_are_frames_or_rejected(chunks: list[bytes]) -> None:
    reader = FrameReader(ReceiveMemory(1000))
    stream = b"".join(chunks)
    expected, position, invalid = [], 0, False
    while len(stream) - position >= 4:
        (size,) = struct.unpack_from(">i", stream, position)
        if not 0 < size <= 1000:
            invalid = True
            break
        if len(stream) < position + 4 + size:
            break
        expected.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    try:
        assert read_all(reader, chunks) == expected
        assert not invalid
        assert reader.buffered_bytes == len(stream) - position
    except InvalidFrameError:
        assert invalid


@given(st.data())
def test_responses_are_in_order_under_any_interleaving(data: st.DataObject) -> None:
    """Requests arrive, responses become ready in any order, and the peer reads or does not."""
    limits = Limits(
        max_in_flight=data.draw(st.integers(1, 6)),
        max_queued_bytes=data.draw(st.integers(1, 300)),
        max_frames_per_turn=data.draw(st.integers(1, 4)),
    )
    handler = Recorder()
    expected: list[bytes] = []
    waiting: list[Callable[[], None]] = []

    def on_frame(connection: ServerConnection, request: bytes) -> None:
        kind, number = request[:1], request[1:]
        if kind == b"n":
            return
        slot = connection.expect_response()
        if kind == b"x":
            waiting.append(slot.discard)
            return
        reply = frame(number * 3)
        expected.append(reply)
        if kind == b"s":
            slot.send(reply)
        elif kind == b"l":
            waiting.append(lambda: slot.send([reply[:2], reply[2:]]))

    handler.on_frame = on_frame
    wired = Wired(handler, limits)
    number = 0
    on_the_way = b""
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["requests", "arrive", "answer", "full", "read", "turn"]))
        if step == "requests":
            for kind in data.draw(st.text("nxsl", min_size=1, max_size=6)):
                on_the_way += frame(f"{kind}{number}".encode())
                number += 1
        elif step == "arrive":
            cut = data.draw(st.integers(0, len(on_the_way)))
            on_the_way = wired.offer(on_the_way[:cut]) + on_the_way[cut:]
        elif step == "answer" and waiting:
            waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))()
        elif step == "full":
            wired.transport.full = True
        elif step == "read":
            wired.transport.full = False
            if wired.transport.pending_bytes:
                wired.transport.let_go()
        elif step == "turn":
            wired.loop.turn()
    wired.transport.full = False
    while on_the_way or waiting or wired.loop.soon or wired.transport.pending_bytes:
        on_the_way = wired.offer(on_the_way)
        if wired.transport.pending_bytes:
            wired.transport.let_go()
        while waiting:
            waiting.pop()()
        wired.loop.turn()
    assert wired.transport.sent == b"".join(expected)
    assert len(handler.frames) == number
    assert (wired.transport.reading, wired.connection.responses_due) == (True, 0)
