import struct

import pytest

from headrace.net.framing import InvalidFrameError
from headrace.net.responses import (
    MAPPED_BYTES,
    ROUND_BYTES,
    SCRATCH_BYTES,
    SMALL_BYTES,
    ResponseMemory,
    ResponseReader,
    body_position,
)


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(reader: ResponseReader, data: bytes, chunk: int | None = None) -> list[bytes]:
    """Returns the responses if this many bytes arrive at a time."""
    replies: list[bytes] = []
    view = memoryview(data)
    while view:
        buffer = reader.get_buffer()
        assert len(buffer) > 0
        size = min(len(buffer), len(view), chunk or len(view))
        buffer[:size] = view[:size]
        view = view[size:]
        replies += map(bytes, reader.updated(size))
    return replies


def payload(size: int) -> bytes:
    return bytes(index % 251 for index in range(size))


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 7, 1000, None])
def test_responses_are_complete_however_they_arrive(chunk: int | None) -> None:
    payloads = [payload(4), payload(100), payload(5), payload(3000)]
    reader = ResponseReader(10_000)
    assert feed(reader, b"".join(map(frame, payloads)), chunk) == payloads
    assert reader.buffered_bytes == 0


@pytest.mark.parametrize("size", [SMALL_BYTES, SMALL_BYTES + 1, SCRATCH_BYTES - 4, SCRATCH_BYTES, 1_000_000])
@pytest.mark.parametrize("chunk", [1000, None])
def test_response_sizes_around_the_limits(size: int, chunk: int | None) -> None:
    payloads = [payload(10), payload(size), payload(20), payload(size)]
    assert feed(ResponseReader(2_000_000), b"".join(map(frame, payloads)), chunk) == payloads


def test_response_split_at_every_byte() -> None:
    payloads = [payload(4), payload(30), payload(9)]
    stream = b"".join(map(frame, payloads))
    for first in range(len(stream) + 1):
        reader = ResponseReader(10_000)
        assert feed(reader, stream[:first]) + feed(reader, stream[first:]) == payloads


def test_large_response_is_received_into_its_own_memory() -> None:
    reader = ResponseReader(10_000_000)
    feed(reader, struct.pack(">i", 1_000_000) + b"abcd")
    first = reader.get_buffer()
    assert len(first) == 1_000_000 - 4
    first[:] = b"x" * len(first)
    (reply,) = reader.updated(len(first))
    assert reply[:4] == b"abcd"
    assert isinstance(reply, memoryview)
    assert reply.obj is first.obj
    # The caller owns it: later bytes do not change it.
    feed(reader, struct.pack(">i", 1_000_000) + b"y" * 1_000_000)
    assert reply[4:8] == b"xxxx"


def test_small_response_survives_the_next_read() -> None:
    reader = ResponseReader(10_000)
    (first,) = feed(reader, frame(b"first"))
    feed(reader, frame(b"other"))
    assert first == b"first"


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        (b"HTTP/1.1 400 Bad Request", "an HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "security.protocol=SSL"),
        (b"SSH-2.0-OpenSSH", "an SSH server"),
        (b"220 mail", "a mail or FTP server"),
        (b"\xff\xff\xff\xff", "a response of -1 bytes"),
        (b"\x00\x00\x00\x03", "a response of 3 bytes"),
        (b"\x7f\xff\xff\xff", r"larger than receive.message.max.bytes \(10000\)"),
    ],
)
def test_invalid_responses_raise(prefix: bytes, words: str) -> None:
    with pytest.raises(InvalidFrameError, match=words):
        feed(ResponseReader(10_000), prefix)


def test_header_tags_are_skipped() -> None:
    assert body_position(b"\0\0\0\1body", has_tags=False) == 4
    assert body_position(b"\0\0\0\1\0body", has_tags=True) == 5
    assert body_position(b"\0\0\0\1\2\0\3abc\x85\1\1xbody", has_tags=True) == 14


@pytest.mark.parametrize(
    "header", [b"\0\0\0\1", b"\0\0\0\1\1", b"\0\0\0\1\1\0\x7f", b"\0\0\0\1\xff\xff\xff\xff\xff\xff"]
)
def test_truncated_header_raises(header: bytes) -> None:
    with pytest.raises(InvalidFrameError, match="header"):
        body_position(header, has_tags=True)


# ---- memory


def test_buffer_without_views_is_reused() -> None:
    memory = ResponseMemory()
    first = memory.take(100_000)
    number = id(first.obj)
    part = first[10:20]
    del first
    second = memory.take(100_000)
    assert id(second.obj) != number  # a view of it is still referenced
    del part
    third = memory.take(100_000)
    assert id(third.obj) == number
    assert memory.held_bytes == 2 * (-(-100_000 // ROUND_BYTES) * ROUND_BYTES)


def test_views_of_any_kind_keep_a_buffer() -> None:
    memory = ResponseMemory()
    view = memory.take(100_000)
    view[:3] = b"abc"
    kept = memoryview(view)[:3].cast("b")
    view.release()
    for _ in range(20):
        other = memory.take(100_000)
        other[:3] = b"xyz"
        del other
    assert bytes(kept) == b"abc"


@pytest.mark.parametrize("size", [MAPPED_BYTES - ROUND_BYTES, MAPPED_BYTES, 3 * MAPPED_BYTES + 1])
def test_mapped_buffers_are_reused(size: int) -> None:
    memory = ResponseMemory()
    view = memory.take(size)
    assert len(view) == size
    view[-1] = 7
    part, number = view[-1:], id(view.obj)
    del view
    assert id(memory.take(size).obj) != number
    assert part[0] == 7
    del part
    assert number in {id(each.obj) for each in [memory.take(size), memory.take(size)]}
    memory.trim()
    memory.trim()
    assert memory.held_bytes == 0


def test_reused_buffers_are_not_much_larger_than_needed() -> None:
    memory = ResponseMemory()
    large = memory.take(10_000_000)
    del large
    assert len(memory.take(100_000).obj) < 300_000  # type: ignore[arg-type]


def test_held_memory_is_limited() -> None:
    memory = ResponseMemory(max_count=3, max_bytes=1_000_000)
    views = [memory.take(100_000) for _ in range(10)]
    assert memory.held_bytes <= 3 * (100_000 + ROUND_BYTES)
    assert len({id(view.obj) for view in views}) == 10
    huge = memory.take(5_000_000)
    assert len(huge) == 5_000_000
    assert memory.held_bytes == 0


def test_unused_memory_is_freed() -> None:
    memory = ResponseMemory()
    memory.take(100_000)
    memory.trim()
    assert memory.held_bytes > 0
    memory.trim()
    assert memory.held_bytes == 0
