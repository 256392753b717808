"""A stretch of a file, handed to a reader without copying."""

import os

from headrace.records import RecordBatch, split_batches
from headrace.storage.files import DataFile

MOST_SENT_AT_ONCE = 2 * 1024 * 1024
"""A socket that takes everything, or a file that is not in memory, must not keep the sender for long."""


class FetchSlice:
    """Stays valid for as long as it is held, also if its segment is deleted meanwhile."""

    __slots__ = ("base_offset", "file", "position", "size")

    def __init__(self, file: DataFile, position: int, size: int, base_offset: int):
        self.file = file
        self.position = position
        self.size = size
        self.base_offset = base_offset
        """Of the first batch, which may lie below the offset that was asked for."""

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes, for who cannot take them from the file: TLS, tests."""
        return self.file.read_at(self.size, self.position)

    def send_to(self, fd: int, sent: int = 0) -> int:
        """Hands bytes from `sent` on to a socket without reading them; returns how many it took."""
        count = min(self.size - sent, MOST_SENT_AT_ONCE)
        return os.sendfile(fd, self.file.fileno(), self.position + sent, count)

    def batches(self) -> list[RecordBatch]:
        """The whole batches in the slice."""
        return split_batches(self.read(), allow_partial=True)
