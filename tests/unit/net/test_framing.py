import struct

import pytest
from tests.support.net.doubles import frame, read_all

from headrace.net import receive_memory
from headrace.net.framing import HUGE_PART_BYTES, SMALL_RUN, FrameReader, InvalidFrameError
from headrace.net.receive_memory import CARRY_BYTES, LARGE_BYTES, SCRATCH_BYTES, ReceiveMemory


@pytest.fixture
def memory() -> ReceiveMemory:
    return ReceiveMemory(100 * 1024 * 1024)


@pytest.fixture
def reader(memory: ReceiveMemory) -> FrameReader:
    return FrameReader(memory)


def payload(size: int, seed: int = 0) -> bytes:
    return bytes((index * 7 + seed) & 255 for index in range(251)) * (size // 251) + bytes(size % 251)


def test_one_frame_in_one_read(reader: FrameReader) -> None:
    assert read_all(reader, [frame(b"hello")]) == [b"hello"]
    assert not reader.holds_buffer


def test_frames_split_at_every_byte(memory: ReceiveMemory) -> None:
    payloads = [b"a", b"bc" * 40, b"d" * 7]
    stream = b"".join(map(frame, payloads))
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            reader = FrameReader(memory)
            assert read_all(reader, [stream[:first], stream[first:second], stream[second:]]) == payloads
            assert reader.buffered_bytes == 0
            reader.close()
    assert memory.held_bytes == 0


def test_frames_arriving_byte_by_byte(reader: FrameReader, memory: ReceiveMemory) -> None:
    payloads = [payload(700, 1), b"x", payload(300, 2)]
    stream = b"".join(map(frame, payloads))
    assert read_all(reader, [stream[i : i + 1] for i in range(len(stream))]) == payloads
    assert memory.held_bytes == 0


def test_many_frames_in_one_read(reader: FrameReader) -> None:
    payloads = [payload(size, size) for size in range(1, 400)]
    assert read_all(reader, [b"".join(map(frame, payloads))]) == payloads


@pytest.mark.parametrize(
    "size",
    [
        CARRY_BYTES - 5,
        CARRY_BYTES - 4,
        CARRY_BYTES - 3,
        SCRATCH_BYTES - 4,
        SCRATCH_BYTES,
        LARGE_BYTES - 4,
        LARGE_BYTES,
        5_000_001,
    ],
)
@pytest.mark.parametrize("chunk", [1000, 70_000, 10_000_000])
def test_frame_sizes_around_the_limits(reader: FrameReader, memory: ReceiveMemory, size: int, chunk: int) -> None:
    payloads = [payload(size, 1), payload(10, 2), payload(size + 1, 3), payload(size, 4)]
    stream = b"".join(map(frame, payloads))
    assert read_all(reader, [stream[i : i + chunk] for i in range(0, len(stream), chunk)]) == payloads
    reader.close()
    assert memory.held_bytes == 0


def test_readers_share_the_scratch_buffer(memory: ReceiveMemory) -> None:
    readers = [FrameReader(memory) for _ in range(5)]
    payloads = [payload(1000 + number, number) for number in range(5)]
    found: list[list[bytes]] = [[] for _ in range(5)]
    for start in range(0, 1010, 100):
        for number, reader in enumerate(readers):
            found[number] += read_all(reader, [frame(payloads[number])[start : start + 100]])
    assert found == [[data] for data in payloads]


def test_reading_may_stop_between_frames(memory: ReceiveMemory) -> None:
    """Remaining bytes survive the use of the scratch buffer by others."""
    reader, other = FrameReader(memory), FrameReader(memory)
    payloads = [payload(100 + number, number) for number in range(20)]
    stream = b"".join(map(frame, payloads))
    cut = len(stream) - 50
    buffer = reader.get_buffer()
    buffer[:cut] = stream[:cut]
    assert reader.updated(cut) is None
    found = []
    while (data := reader.next_frame()) is not None:
        found.append(bytes(data))
        reader.settle()
        read_all(other, [frame(payload(5000))])
    reader.settle()
    assert found + read_all(reader, [stream[cut:]]) == payloads
    assert memory.held_bytes == 0


def test_claimed_size_takes_no_memory_and_partial_frame_is_copied_once(memory: ReceiveMemory) -> None:
    reader = FrameReader(memory)
    read_all(reader, [struct.pack(">i", CARRY_BYTES - 4)])
    assert (reader.holds_buffer, reader.buffered_bytes) == (False, 4)
    read_all(reader, [b"a"])
    assert (reader.holds_buffer, reader.buffered_bytes) == (True, 5), "not copied a second time"
    large = FrameReader(memory)
    read_all(large, [struct.pack(">i", 100_000_000) + b"a"])
    assert large.holds_buffer
    buffer = large.get_buffer()
    assert len(buffer) == HUGE_PART_BYTES, "in parts, since fresh memory is slow"
    usual = FrameReader(memory)
    read_all(usual, [struct.pack(">i", 1_000_000) + b"a"])
    assert len(usual.get_buffer()) == 1_000_000 - 1, "to the end of the frame, not beyond"


def test_large_frames_are_received_in_place(reader: FrameReader) -> None:
    """After the first frame nothing is copied: the frame is in the memory that `get_buffer` returned."""
    data = frame(payload(1_000_000))
    assert len(read_all(reader, [data])) == 1
    buffer = reader.get_buffer()
    buffer[: len(data)] = data
    reader.updated(len(data))
    found = reader.next_frame()
    assert found is not None
    found[0] = 99
    assert buffer[4] == 99
    reader.settle()


def test_buffer_is_kept_for_large_frames_only(reader: FrameReader, memory: ReceiveMemory) -> None:
    large, small = frame(payload(1_000_000)), frame(b"small")
    read_all(reader, [large])
    assert reader.holds_buffer
    for _ in range(3):
        read_all(reader, [small] * (SMALL_RUN - 1) + [large])
        assert reader.holds_buffer
    read_all(reader, [small] * (SMALL_RUN + 1))
    assert not reader.holds_buffer
    assert memory.held_bytes == 0


def test_unused_buffer_is_released(reader: FrameReader, memory: ReceiveMemory) -> None:
    data = frame(payload(1_000_000))
    read_all(reader, [data, data[:200_000]])
    memory.trim()
    memory.trim()
    assert reader.holds_buffer, "it contains bytes"
    read_all(reader, [data[200_000:]])
    memory.trim()
    assert reader.holds_buffer, "it was used since the last call"
    memory.trim()
    assert not reader.holds_buffer
    assert memory.held_bytes == 0
    assert read_all(reader, [data]) == [data[4:]]


def receive(reader: FrameReader, data: bytes) -> memoryview:
    """Receives a large frame for which the reader has a buffer already. The caller settles."""
    reader.get_buffer()[: len(data)] = data
    reader.updated(len(data))
    found = reader.next_frame()
    assert found is not None
    return found


def test_kept_frame_stays_valid_until_it_is_released(reader: FrameReader, memory: ReceiveMemory) -> None:
    data = frame(payload(1_000_000))
    read_all(reader, [data])
    kept = reader.keep(receive(reader, data))
    assert reader.settle()
    memory.trim()
    memory.trim()
    assert reader.holds_buffer
    assert kept == data[4:]
    reader.release_kept()
    assert reader.settle()
    memory.trim()
    memory.trim()
    assert not reader.holds_buffer


def test_kept_frame_of_a_closed_reader_counts_until_it_is_released(memory: ReceiveMemory) -> None:
    closed, other = FrameReader(memory), FrameReader(memory)
    data = frame(payload(1_000_000))
    read_all(closed, [data])
    kept = closed.keep(receive(closed, data))
    closed.close()
    assert memory.held_bytes == LARGE_BYTES
    read_all(other, [frame(payload(1_000_000, seed=1))])
    assert kept == data[4:], "its buffer was not recycled"
    closed.release_kept()
    assert not closed.holds_buffer


def test_kept_small_frame_is_a_copy(reader: FrameReader, memory: ReceiveMemory) -> None:
    data = frame(b"small")
    memory.scratch[: len(data)] = data
    received = reader.updated(len(data))
    assert received is not None
    kept = reader.keep(received)
    memory.scratch[: len(data)] = bytes(len(data))
    assert kept == b"small"
    assert not reader.holds_buffer
    assert memory.held_bytes == len(b"small"), "the copy counts"
    reader.close()
    assert memory.held_bytes == len(b"small")
    reader.release_kept()
    assert memory.held_bytes == 0


def test_buffers_are_recycled(memory: ReceiveMemory) -> None:
    first, second = memory.take(1_000_000), memory.take(LARGE_BYTES)
    memory.give_back(first)
    assert memory.take(CARRY_BYTES + 1) is first
    memory.give_back(second)
    memory.trim()
    memory.trim()
    assert memory.take(1_000_000) is not second


def test_memory_allocation_failure(reader: FrameReader, memory: ReceiveMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> memoryview:
        raise OSError("no memory")

    read_all(reader, [frame(payload(200_000)) + frame(b"x")[:5]])
    held = memory.held_bytes
    monkeypatch.setattr(receive_memory, "_map", refuse)
    with pytest.raises(OSError, match="no memory"):
        read_all(reader, [struct.pack(">i", 50_000_000) + b"a"])
    assert memory.held_bytes == held
    reader.close()
    assert (memory.held_bytes, memory.holders) == (0, set())


def test_buffers_beyond_the_limit_are_returned_at_once() -> None:
    memory = ReceiveMemory(100_000_000, keep_bytes=2 * LARGE_BYTES)
    readers = [FrameReader(memory) for _ in range(4)]
    for reader in readers:
        read_all(reader, [frame(payload(1_000_000))])
    assert [reader.holds_buffer for reader in readers] == [True, True, False, False]


@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1])
@pytest.mark.parametrize("before", [b"", frame(b"good")])
def test_invalid_frame_sizes_raise(size: int, before: bytes) -> None:
    reader = FrameReader(ReceiveMemory(100))
    with pytest.raises(InvalidFrameError, match=rf"a frame of {size} bytes"):
        read_all(reader, [before + struct.pack(">i", size) + b"more"])


def test_largest_frame_is_accepted() -> None:
    assert read_all(FrameReader(ReceiveMemory(100)), [frame(bytes(100))]) == [bytes(100)]
    with pytest.raises(InvalidFrameError, match=r"101 bytes, larger than socket.request.max.bytes \(100\)"):
        read_all(FrameReader(ReceiveMemory(100)), [frame(bytes(101))])


@pytest.mark.parametrize(
    ("greeting", "name"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"POST /topics HTTP/1.1\r\n", "an HTTP request"),
        (bytes.fromhex("16030100f2010000ee0303"), "a TLS handshake"),
        (b"SSH-2.0-OpenSSH", "an SSH connection"),
    ],
)
def test_other_protocols_are_recognized(reader: FrameReader, greeting: bytes, name: str) -> None:
    with pytest.raises(InvalidFrameError, match=f"this looks like {name}"):
        read_all(reader, [greeting])


def test_a_lower_limit_for_one_reader(memory: ReceiveMemory) -> None:
    """Before authentication: neither memory nor time for large frames."""
    reader = FrameReader(memory)
    reader.limit_frames(1000, "sasl.server.max.receive.size")
    assert read_all(reader, [frame(payload(1000))]) == [payload(1000)]
    with pytest.raises(InvalidFrameError, match=r"1001 bytes, larger than sasl\.server\.max\.receive\.size \(1000\)"):
        read_all(reader, [frame(payload(1001))])
    assert memory.held_bytes == 0
    reader = FrameReader(memory)
    reader.limit_frames(1000, "sasl.server.max.receive.size")
    reader.unlimit_frames()
    assert read_all(reader, [frame(payload(100_000))]) == [payload(100_000)]
