"""A range of a segment file, passed to a reader without copying."""

import os

from headrace.records import RecordBatch, split_batches
from headrace.storage.files import DataFile

MOST_SENT_AT_ONCE = 2 * 1024 * 1024
"""Limits how long one `sendfile` call blocks if the socket accepts everything or the file is not in the page cache."""


class FetchSlice:
    """A range of a segment file. It stays readable while it is referenced, even if its segment is deleted."""

    __slots__ = ("base_offset", "file", "position", "size")

    def __init__(self, file: DataFile, position: int, size: int, base_offset: int):
        self.file = file
        self.position = position
        self.size = size
        self.base_offset = base_offset
        """The base offset of the first batch, which may be below the requested offset."""

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self.file.fileno()

    def read(self) -> bytes:
        """Returns the bytes, for readers that cannot use `sendfile` (TLS, tests)."""
        return self.file.read_at(self.size, self.position)

    def send_to(self, fd: int, sent: int = 0) -> int:
        """Sends bytes to a socket with `sendfile`, starting at `sent`. Returns how many bytes the socket accepted."""
        count = min(self.size - sent, MOST_SENT_AT_ONCE)
        return os.sendfile(fd, self.file.fileno(), self.position + sent, count)

    def batches(self) -> list[RecordBatch]:
        """Returns the complete batches of the slice."""
        return split_batches(self.read(), allow_partial=True)
