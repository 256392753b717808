"""The sparse indexes of a segment. All numbers are big-endian; offsets are relative to the segment's base offset.

    .index       8 bytes an entry    int32 offset, int32 position
                 The batch whose last offset is `offset` starts at byte `position` of the log.
    .timeindex   12 bytes an entry   int64 timestamp, int32 offset
                 No record up to `offset` is newer than `timestamp`; the batch that ends with `offset` has it.

Entries of the active segment are kept in memory and reach the file when the segment is flushed, rolled or closed: a
crash loses only entries that recovery makes again from the log. The index of a segment that takes no more appends is
mapped when it is first searched, and not at all before.
"""

import bisect
import struct
from pathlib import Path

from headrace.common.errors import HeadraceError
from headrace.common.types import Buffer
from headrace.storage.files import FileSystem


class CorruptIndexError(HeadraceError):
    """An index that contradicts itself or its log. Always mended by making the index again."""


class _Index:
    """Entries of one fixed form, ordered by their first field."""

    entry: struct.Struct
    suffix: str

    def __init__(self, path: Path, base_offset: int, files: FileSystem, size_in_bytes: int | None):
        """`size_in_bytes` is the file's size, None if there is no file yet."""
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._saved_bytes = size_in_bytes or 0
        self._data: Buffer | None = None if size_in_bytes else bytearray()
        self._exists = size_in_bytes is not None

    def __len__(self) -> int:
        return (self._saved_bytes if self._data is None else len(self._data)) // self.entry.size

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._exists

    def _entries(self) -> Buffer:
        if self._data is None:
            self._data = self._files.map(self.path)
        return self._data

    def _writable(self) -> bytearray:
        if not isinstance(self._data, bytearray):
            self._data = bytearray(self._entries())
        return self._data

    def _at(self, slot: int) -> tuple[int, int]:
        first, second = self.entry.unpack_from(self._entries(), slot * self.entry.size)
        return first, second

    def _slot_at_or_below(self, target: int) -> int:
        """The last entry whose first field is not above `target`; -1 if there is none."""
        entries, entry = self._entries(), self.entry
        size = entry.size
        return (
            bisect.bisect_right(range(len(self)), target, key=lambda slot: entry.unpack_from(entries, slot * size)[0])
            - 1
        )

    def keep(self, count: int) -> None:
        """Drops all but the first `count` entries."""
        data = self._writable()
        del data[count * self.entry.size :]
        if self._saved_bytes > len(data):
            self._write_all(data)

    def reset(self) -> None:
        """Drops all entries, also of a file that cannot be read."""
        self._data = bytearray()
        self._write_all(self._data)

    def _write_all(self, data: bytearray) -> None:
        self._saved_bytes = 0
        self._write(data, 0)

    def _write(self, data: Buffer, position: int) -> None:
        """Writes entries, and nothing stays behind them: not the rest of a write that failed, either."""
        file = self._files.open(self.path, create=True)
        self._exists = True
        try:
            file.truncate(position)
            file.write_at(data, position)
        finally:
            file.close()
        self._saved_bytes = position + len(data)

    def save(self) -> None:
        """Writes entries that are not in the file yet."""
        if not isinstance(self._data, bytearray):
            return
        if len(self._data) != self._saved_bytes or not self._exists:
            self._write(self._data[self._saved_bytes :], self._saved_bytes)

    def seal(self) -> None:
        """Saves and lets go of the memory; searches map the file from now on."""
        self.save()
        self._data = None if self._saved_bytes else bytearray()

    def unmap(self) -> None:
        """Lets go of the file; the next search maps it again."""
        if not isinstance(self._data, bytearray):
            self._data = None

    def check(self) -> None:
        """Raises CorruptIndexError for an index whose file cannot be right, by its size and last entry alone."""
        if self._saved_bytes % self.entry.size:
            raise CorruptIndexError(f"{self.path} has {self._saved_bytes} bytes, not a multiple of {self.entry.size}")


class OffsetIndex(_Index):
    entry = struct.Struct(">ii")
    suffix = ".index"

    def append(self, offset: int, position: int) -> None:
        """The batch at `position` ends with `offset`. Offsets must grow."""
        data = self._writable()
        if data and self._at(len(self) - 1)[0] >= offset - self.base_offset:
            raise ValueError(f"{self.path}: offset {offset} does not follow the last entry")
        data += self.entry.pack(offset - self.base_offset, position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """Last offset and position of the last indexed batch that ends at or before `offset`; the start of the log if
        there is none."""
        slot = self._slot_at_or_below(offset - self.base_offset)
        if slot < 0:
            return self.base_offset - 1, 0
        relative, position = self._at(slot)
        return self.base_offset + relative, position

    def last(self) -> tuple[int, int]:
        return self.lookup(self.base_offset + 2**31)

    def entries(self) -> list[tuple[int, int]]:
        return [(self.base_offset + relative, position) for relative, position in map(self._at, range(len(self)))]

    def truncate_to(self, offset: int) -> None:
        """Drops entries of batches that end at or beyond `offset`."""
        self.keep(self._slot_at_or_below(offset - self.base_offset - 1) + 1)

    def drop_torn_tail(self) -> None:
        """Keeps the entries up to the first that does not grow: a file written by Kafka ends in zeros after a crash.

        It may be all zeros. No entry is at position 0: the first batch is found without one.
        """
        count, previous = 0, (-1, 0)
        for relative, position in map(self._at, range(len(self))):
            if relative <= previous[0] or position <= previous[1]:
                break
            previous = (relative, position)
            count += 1
        self.keep(count)


class TimeIndex(_Index):
    entry = struct.Struct(">qi")
    suffix = ".timeindex"

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if the timestamp is newer than the last one."""
        if timestamp < 0 or (len(self) and self._at(len(self) - 1)[0] >= timestamp):
            return
        data = self._writable()
        data += self.entry.pack(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry older than `timestamp`: the search for it may start behind that entry's offset."""
        slot = self._slot_at_or_below(timestamp - 1)
        if slot < 0:
            return -1, self.base_offset - 1
        found, relative = self._at(slot)
        return found, self.base_offset + relative

    def last(self) -> tuple[int, int]:
        """Largest timestamp and its offset; (-1, base - 1) if the index is empty."""
        return self.lookup(2**63 - 1)

    def entries(self) -> list[tuple[int, int]]:
        return [(timestamp, self.base_offset + relative) for timestamp, relative in map(self._at, range(len(self)))]

    def truncate_to(self, offset: int) -> None:
        """Drops entries that name an offset at or beyond `offset`."""
        count = bisect.bisect_left(range(len(self)), offset - self.base_offset, key=lambda slot: self._at(slot)[1])
        self.keep(count)

    def drop_torn_tail(self) -> None:
        """Keeps the entries up to the first that does not grow, or is zero."""
        count, previous = 0, (0, -1)
        for timestamp, relative in map(self._at, range(len(self))):
            if timestamp <= previous[0] or relative < previous[1]:
                break
            previous = (timestamp, relative)
            count += 1
        self.keep(count)
