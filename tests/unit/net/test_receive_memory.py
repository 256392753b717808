import struct

import pytest
from tests.support.net.doubles import frame, read_all

from headrace.net import receive_memory
from headrace.net.framing import FrameReader
from headrace.net.receive_memory import CARRY_BYTES, LARGE_BYTES, ReceiveMemory

MIB = 1024 * 1024
LIMIT = 16 * MIB


def start_frame(memory: ReceiveMemory, size: int) -> tuple[FrameReader, list[str]]:
    """Starts to receive a frame. Returns its reader, and a list that gets an item when the frame was admitted later."""
    reader = FrameReader(memory)
    granted: list[str] = []
    buffer = reader.get_buffer()
    data = struct.pack(">i", size) + b"a"
    count = min(len(buffer), len(data))
    buffer[:count] = data[:count]
    reader.updated(count)
    assert reader.next_frame() is None
    if not reader.settle():
        reader.wait_for_memory(lambda: granted.append("granted"))
    return reader, granted


def test_frames_above_the_limit_wait_in_order() -> None:
    memory = ReceiveMemory(8 * MIB, LIMIT)
    first, _ = start_frame(memory, 8 * MIB)
    assert not memory.waiters
    waiting = [start_frame(memory, 7 * MIB) for _ in range(3)]
    assert list(memory.waiters) == [reader for reader, _ in waiting]
    first.close()
    assert [granted for _, granted in waiting] == [["granted"], [], []]
    for reader, _ in waiting:
        reader.close()
    assert (memory.held_bytes, memory.holders, memory.waiters) == (0, set(), {})


def test_waiting_frame_arrives_complete() -> None:
    memory = ReceiveMemory(8 * MIB, LIMIT)
    first, _ = start_frame(memory, 8 * MIB)
    payload = b"a" + bytes(range(256)) * (7 * MIB // 256)
    reader, granted = start_frame(memory, len(payload))
    sent = reader.buffered_bytes
    first.close()
    assert granted
    assert read_all(reader, [frame(payload)[sent:]]) == [payload]


def test_large_frames_leave_a_quarter_to_ordinary_ones_and_small_ones_always_fit() -> None:
    memory = ReceiveMemory(16 * MIB, LIMIT)
    huge, _ = start_frame(memory, 16 * MIB)
    ordinary = [start_frame(memory, LARGE_BYTES - 4)[0] for _ in range(3)]
    assert not memory.waiters, "three buffers of the usual large size fit into a quarter"
    waiting, granted = start_frame(memory, LARGE_BYTES - 4)
    assert list(memory.waiters) == [waiting]
    assert read_all(FrameReader(memory), [frame(b"x" * (CARRY_BYTES - 4))]) == [b"x" * (CARRY_BYTES - 4)]
    ordinary.pop().close()
    assert granted == ["granted"]
    for reader in [huge, waiting, *ordinary]:
        reader.close()
    assert memory.held_bytes == 0


def test_closed_connection_waits_no_longer() -> None:
    memory = ReceiveMemory(8 * MIB, LIMIT)
    first, _ = start_frame(memory, 8 * MIB)
    second, granted = start_frame(memory, 8 * MIB)
    second.close()
    first.close()
    assert not granted
    assert (memory.held_bytes, memory.waiters) == (0, {})


def test_only_the_size_is_read_while_memory_is_short() -> None:
    memory = ReceiveMemory(16 * MIB, LIMIT)
    huge, _ = start_frame(memory, 16 * MIB)
    waiting, _ = start_frame(memory, 16 * MIB)
    assert waiting.buffered_bytes == 4
    two_frames = frame(b"one") + frame(b"two")
    reader = FrameReader(memory)
    assert len(reader.get_buffer()) == 4
    assert read_all(reader, [two_frames[:2], two_frames[2:]]) == [b"one", b"two"]
    waiting.close()
    huge.close()
    assert len(reader.get_buffer()) > 4


def test_empty_buffers_are_released_for_a_frame_that_waits() -> None:
    memory = ReceiveMemory(4 * MIB, 8 * MIB)
    reader = FrameReader(memory)
    read_all(reader, [frame(bytes(LARGE_BYTES - 4))])
    assert reader.holds_buffer, "kept for the next large frame"
    for _ in range(6):
        start_frame(memory, LARGE_BYTES - 4)
    assert not memory.waiters
    assert not reader.holds_buffer


def test_started_small_frames_count() -> None:
    memory = ReceiveMemory(MIB, LIMIT)
    reader = FrameReader(memory)
    read_all(reader, [frame(bytes(1000))[:600]])
    assert (memory.held_bytes, memory.holders) == (600, {reader})
    read_all(reader, [frame(bytes(1000))[600:]])
    assert (memory.held_bytes, memory.holders) == (0, set())


def test_waiters_continue_after_a_failed_allocation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(size: int) -> memoryview:
        raise OSError("no memory")

    memory = ReceiveMemory(8 * MIB, LIMIT)
    first, _ = start_frame(memory, 8 * MIB)
    second, _ = start_frame(memory, 2 * MIB)
    waiting, granted = start_frame(memory, 8 * MIB)
    with monkeypatch.context() as patch:
        patch.setattr(receive_memory, "_map", refuse)
        first.close()
    assert list(memory.waiters) == [waiting]
    assert "cannot allocate" in caplog.text
    second.close()
    assert granted == ["granted"]


def test_failed_allocation_is_retried_when_nothing_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> memoryview:
        raise OSError("no memory")

    memory = ReceiveMemory(8 * MIB, LIMIT)
    first, _ = start_frame(memory, 8 * MIB)
    waiting, granted = start_frame(memory, 8 * MIB)
    with monkeypatch.context() as patch:
        patch.setattr(receive_memory, "_map", refuse)
        first.close()
    assert list(memory.waiters) == [waiting]
    memory.trim()
    assert granted == ["granted"]
