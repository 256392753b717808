"""The sparse indexes of a segment. All numbers are big-endian; offsets are relative to the segment's base offset.

    .index       8 bytes per entry    int32 offset, int32 position
                 The batch whose last offset is `offset` starts at byte `position` of the log.
    .timeindex   12 bytes per entry   int64 timestamp, int32 offset
                 No record up to `offset` is newer than `timestamp`; the batch with last offset `offset` contains it.

The entries of the active segment are kept in memory and written when the segment is flushed, rolled or closed. A crash
loses only entries that recovery rebuilds from the log. The index of a sealed segment is memory-mapped at the first
lookup.
"""

import bisect
import struct
from pathlib import Path

from headrace.common.errors import HeadraceError
from headrace.common.types import Buffer
from headrace.storage._fast_append import IndexFields
from headrace.storage.files import FileSystem


class CorruptIndexError(HeadraceError):
    """The index contradicts itself or its log. The caller rebuilds it from the log."""


class _Index(IndexFields):
    """The base of both indexes: fixed-size entries, ordered by their first field."""

    entry: struct.Struct
    suffix: str

    def __init__(self, path: Path, base_offset: int, files: FileSystem, size_in_bytes: int | None):
        """Opens an index. `size_in_bytes` is the size of the file; None if it does not exist yet."""
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._saved_bytes = size_in_bytes or 0
        self._data = None if size_in_bytes else bytearray()
        """The entries of an index that is or was written; None if all entries are in the file."""
        self._mapped: Buffer | None = None
        """The mapped file of an index without `_data`. Any thread may close it."""
        self._exists = size_in_bytes is not None
        self.recently_used = False

    def __len__(self) -> int:
        return (self._saved_bytes if self._data is None else len(self._data)) // self.entry.size

    @property
    def exists(self) -> bool:
        """True if the index file exists."""
        return self._exists

    def _entries(self) -> Buffer:
        if self._data is not None:
            return self._data
        self.recently_used = True
        mapped = self._mapped
        if mapped is None:
            mapped = self._mapped = self._files.open_files.open(self, self._map)
        return mapped

    def _map(self) -> Buffer:
        return self._files.map(self.path)

    def close_idle_file(self) -> None:
        self._mapped = None

    def _writable(self) -> bytearray:
        if self._data is None:
            self._data = bytearray(self._entries())
            self.unmap()
        return self._data

    def _at(self, slot: int) -> tuple[int, int]:
        first, second = self.entry.unpack_from(self._entries(), slot * self.entry.size)
        return first, second

    def _slot_at_or_below(self, target: int) -> int:
        """Returns the slot of the last entry whose first field is at most `target`; -1 if there is none."""
        entries, entry = self._entries(), self.entry
        size = entry.size
        return (
            bisect.bisect_right(range(len(self)), target, key=lambda slot: entry.unpack_from(entries, slot * size)[0])
            - 1
        )

    def keep(self, count: int) -> None:
        """Removes all but the first `count` entries."""
        data = self._writable()
        del data[count * self.entry.size :]
        if self._saved_bytes > len(data):
            self._write_all(data)

    def reset(self) -> None:
        """Removes all entries, even if the file cannot be read."""
        self.unmap()
        self._data = bytearray()
        self._write_all(self._data)

    def _write_all(self, data: bytearray) -> None:
        self._saved_bytes = 0
        self._write(data, 0)

    def _write(self, data: Buffer, position: int) -> None:
        """Writes entries at a position. Truncates the file first, which also removes the rest of a failed write."""
        file = self._files.open(self.path, create=True)
        self._exists = True
        try:
            file.truncate(position)
            file.write_at(data, position)
        finally:
            file.close()
        self._saved_bytes = position + len(data)

    def save(self) -> None:
        """Writes the entries that are not in the file yet."""
        data = self._data
        if data is not None and (len(data) != self._saved_bytes or not self._exists):
            self._write(data[self._saved_bytes :], self._saved_bytes)

    def seal(self) -> None:
        """Saves the entries and releases their memory; lookups map the file from now on."""
        self.save()
        self._data = None if self._saved_bytes else bytearray()

    def unmap(self) -> None:
        """Releases the mapped file; the next lookup maps it again."""
        if self._mapped is not None:
            self._mapped = None
            self._files.open_files.closed(self)

    def check(self) -> None:
        """Raises CorruptIndexError if the size of the file is not a multiple of the entry size."""
        if self._saved_bytes % self.entry.size:
            raise CorruptIndexError(f"{self.path} has {self._saved_bytes} bytes, not a multiple of {self.entry.size}")


class OffsetIndex(_Index):
    """Maps offsets to positions in the segment file."""

    entry = struct.Struct(">ii")
    suffix = ".index"

    def append(self, offset: int, position: int) -> None:
        """Adds an entry for the batch at `position` whose last offset is `offset`. Offsets must increase."""
        data = self._writable()
        if data and self._at(len(self) - 1)[0] >= offset - self.base_offset:
            raise ValueError(f"{self.path}: offset {offset} is not greater than the last entry's")
        data += self.entry.pack(offset - self.base_offset, position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """Returns last offset and position of the last indexed batch that ends at or before `offset`.

        Returns (base offset - 1, 0) if there is none.
        """
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
        """Removes the entries of batches that end at or after `offset`."""
        self.keep(self._slot_at_or_below(offset - self.base_offset - 1) + 1)

    def drop_torn_tail(self) -> None:
        """Removes the entries from the first one that does not increase.

        A file that Kafka wrote ends in zeros after a crash, or has only zeros. No valid entry has position 0, because
        the first batch needs no entry.
        """
        count, previous = 0, (-1, 0)
        for relative, position in map(self._at, range(len(self))):
            if relative <= previous[0] or position <= previous[1]:
                break
            previous = (relative, position)
            count += 1
        self.keep(count)


class TimeIndex(_Index):
    """Maps timestamps to offsets."""

    entry = struct.Struct(">qi")
    suffix = ".timeindex"

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if the timestamp is newer than the last entry's."""
        if timestamp < 0 or (len(self) and self._at(len(self) - 1)[0] >= timestamp):
            return
        data = self._writable()
        data += self.entry.pack(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Returns the last entry older than `timestamp`. A search for `timestamp` may start after its offset."""
        slot = self._slot_at_or_below(timestamp - 1)
        if slot < 0:
            return -1, self.base_offset - 1
        indexed_timestamp, relative = self._at(slot)
        return indexed_timestamp, self.base_offset + relative

    def last(self) -> tuple[int, int]:
        """Returns the largest timestamp and its offset; (-1, base offset - 1) if the index is empty."""
        return self.lookup(2**63 - 1)

    def entries(self) -> list[tuple[int, int]]:
        return [(timestamp, self.base_offset + relative) for timestamp, relative in map(self._at, range(len(self)))]

    def truncate_to(self, offset: int) -> None:
        """Removes the entries whose offset is at or after `offset`."""
        count = bisect.bisect_left(range(len(self)), offset - self.base_offset, key=lambda slot: self._at(slot)[1])
        self.keep(count)

    def drop_torn_tail(self) -> None:
        """Removes the entries from the first one that does not increase or is zero."""
        count, previous = 0, (0, -1)
        for timestamp, relative in map(self._at, range(len(self))):
            if timestamp <= previous[0] or relative < previous[1]:
                break
            previous = (timestamp, relative)
            count += 1
        self.keep(count)
