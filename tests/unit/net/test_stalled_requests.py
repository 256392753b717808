import struct

import pytest
from tests.support.net.doubles import frame, read_all

from headrace.net.framing import FrameReader
from headrace.net.receive_memory import ReceiveMemory
from headrace.net.stalled_requests import (
    MAX_SILENT_SECONDS,
    MAX_SLOW_SECONDS,
    MIN_PROGRESS_BYTES,
    StalledRequests,
    describe_request,
)

MIB = 1024 * 1024


@pytest.fixture
def memory() -> ReceiveMemory:
    return ReceiveMemory(8 * MIB, 8 * MIB)


@pytest.fixture
def stalled(memory: ReceiveMemory) -> StalledRequests:
    return StalledRequests(memory)


def start_frame(memory: ReceiveMemory) -> FrameReader:
    reader = FrameReader(memory)
    read_all(reader, [struct.pack(">i", 8 * MIB) + b"a"])
    return reader


def let_another_wait(memory: ReceiveMemory) -> None:
    reader = FrameReader(memory)
    reader.get_buffer()[:4] = struct.pack(">i", 8 * MIB)
    reader.updated(4)
    reader.next_frame()
    assert not reader.settle()
    reader.wait_for_memory(lambda: None)


def test_silent_request_is_found_after_a_while(memory: ReceiveMemory, stalled: StalledRequests) -> None:
    reader = start_frame(memory)
    for _ in range(MAX_SILENT_SECONDS):
        assert stalled.check() == []
    assert stalled.check() == [reader]
    assert stalled.reason(reader) == f"received nothing in the last {MAX_SILENT_SECONDS} seconds"
    read_all(reader, [b"b"])
    assert stalled.check() == []


def test_slow_requests_are_found_soon_while_others_wait(memory: ReceiveMemory, stalled: StalledRequests) -> None:
    reader = start_frame(memory)
    let_another_wait(memory)
    for _ in range(MAX_SLOW_SECONDS):
        assert stalled.check() == []
        read_all(reader, [b"b"])
    assert stalled.check() == [reader]
    assert "other requests wait for memory (queued.max.request.bytes=8388608)" in stalled.reason(reader)


def test_progress_is_enough(memory: ReceiveMemory, stalled: StalledRequests) -> None:
    reader = start_frame(memory)
    let_another_wait(memory)
    for _ in range(2 * MAX_SLOW_SECONDS):
        assert stalled.check() == []
        read_all(reader, [bytes(MIN_PROGRESS_BYTES)])


def test_slowest_request_is_first_and_the_next_is_spared_if_memory_suffices(
    memory: ReceiveMemory, stalled: StalledRequests
) -> None:
    # A started frame that needs no buffer is the slowest, then comes the large one.
    small = FrameReader(memory)
    read_all(small, [frame(bytes(1000))[:500]])
    stalled.check()
    large = start_frame(memory)
    let_another_wait(memory)
    for _ in range(MAX_SLOW_SECONDS):
        stalled.check()
    assert stalled.check() == [small, large]
    large.close()
    assert not memory.waiters
    assert not stalled.must_drop(small)


def test_time_of_a_connection_that_is_not_read_does_not_count(memory: ReceiveMemory, stalled: StalledRequests) -> None:
    reader = start_frame(memory)
    for _ in range(MAX_SILENT_SECONDS):
        stalled.check()
    stalled.excuse(reader)
    for _ in range(MAX_SILENT_SECONDS - 1):
        assert stalled.check() == []


def test_kept_empty_buffer_is_not_stalled(memory: ReceiveMemory, stalled: StalledRequests) -> None:
    reader = FrameReader(memory)
    read_all(reader, [frame(bytes(MIB))])
    assert reader.holds_buffer
    for _ in range(MAX_SILENT_SECONDS + 2):
        assert stalled.check() == []


def test_description_names_the_request_and_its_client() -> None:
    header = struct.pack(">hhih", 0, 9, 7, 7) + b"billing" + b"\0"
    start = struct.pack(">i", 5000) + header + b"..."
    assert describe_request(memoryview(start)) == (
        "a PRODUCE v9 request of client 'billing' of 5000 bytes, of which it sent 21"
    )
    assert describe_request(memoryview(start[:9])) == "a request of 5000 bytes, of which it sent 5"
    assert describe_request(memoryview(b"ab")) == "a request of which it sent 2 bytes"
