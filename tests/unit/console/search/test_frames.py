"""The stream of a scan process."""

import asyncio
import io

import pytest

from headrace.common.errors import HeadraceError
from headrace.console.search.frames import DATA, JSON, FrameWriter, read_frame


def test_what_is_written_is_read() -> None:
    written = io.BytesIO()
    writer = FrameWriter(written)
    writer.event("progress", {"done": 1})
    writer.data(b"\0\1")

    async def read() -> list[tuple[bytes, bytes] | None]:
        stream = asyncio.StreamReader()
        stream.feed_data(written.getvalue() + b"J\0")
        stream.feed_eof()
        return [await read_frame(stream) for _ in range(3)]

    assert asyncio.run(read()) == [(JSON, b'{"progress": {"done": 1}}'), (DATA, b"\0\1"), None]


def test_something_else() -> None:
    async def read() -> None:
        stream = asyncio.StreamReader()
        stream.feed_data(b"Traceback (most recent call last)")
        with pytest.raises(HeadraceError, match="wrong frame: type b'T'"):
            await read_frame(stream)

    asyncio.run(read())
