"""Frames of any size, split anywhere, on alternating connections, compared with the list of sent frames."""

import struct
from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.support.net.doubles import Recorder, Wired, frame, read_all

from headrace.net import Limits, ServerConnection
from headrace.net.framing import FrameReader, InvalidFrameError
from headrace.net.receive_memory import CARRY_BYTES, LARGE_BYTES, SCRATCH_BYTES, ReceiveMemory

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


@given(
    st.lists(st.lists(st.one_of(SIZES, st.integers(LARGE_BYTES, 4_000_000)), max_size=4), min_size=1, max_size=6),
    st.integers(4_000_000, 8_000_000),
    st.randoms(use_true_random=False),
)
def test_limited_memory_delays_frames_but_loses_none(connections: list[list[int]], limit: int, random: Random) -> None:
    memory = ReceiveMemory(4_000_000, limit)
    readers = [FrameReader(memory) for _ in connections]
    sent = [[payload(size, seed) for seed, size in enumerate(sizes)] for sizes in connections]
    streams = [b"".join(map(frame, payloads)) for payloads in sent]
    received: list[list[bytes]] = [[] for _ in connections]
    closed = {number for number in range(len(connections)) if random.random() < 0.2}
    while any(streams):
        unfinished = [number for number, stream in enumerate(streams) if stream]
        readable = [number for number in unfinished if readers[number] not in memory.waiters]
        assert readable, "every connection waits for memory, and none can continue"
        number = random.choice(readable)
        reader = readers[number]
        if number in closed and random.random() < 0.3:
            reader.close()
            streams[number] = b""
            continue
        buffer = reader.get_buffer()
        size = min(len(buffer), len(streams[number]), random.choice((3, 4, 1000, 100_000, 2_000_000)))
        buffer[:size] = streams[number][:size]
        streams[number] = streams[number][size:]
        received[number] += frames_of(reader, size)
        assert memory.held_bytes <= 2 * limit
    for number, reader in enumerate(readers):
        assert number in closed or received[number] == sent[number]
        reader.close()
    assert (memory.held_bytes, memory.holders, memory.waiters) == (0, set(), {})


def frames_of(reader: FrameReader, size: int) -> list[bytes]:
    """Reports received bytes. Returns the frames that they complete."""
    found = reader.updated(size)
    if found is not None:
        return [bytes(found)]
    frames = []
    while (found := reader.next_frame()) is not None:
        frames.append(bytes(found))
    if not reader.settle():
        reader.wait_for_memory(lambda: None)
    return frames


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
