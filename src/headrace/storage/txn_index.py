"""The transaction index of a segment, `.txnindex`: the aborted transactions, which `read_committed` consumers skip.

    34 bytes per entry: version int16 (0), producer id int64, first offset int64, last offset int64 (the marker's),
    last stable offset int64 (when the transaction ended)

Entries are appended as transactions end, so they are ordered by last offset. As with the other indexes, the entries of
the active segment are written to the file when it is flushed, rolled or closed. Without entries there is no file.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from headrace.storage.files import FileSystem
from headrace.storage.index import CorruptIndexError

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An entry of the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, ordered by last offset."""

    suffix = ".txnindex"

    def __init__(self, path: Path, base_offset: int, files: FileSystem, size_in_bytes: int | None):
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._size_in_bytes = size_in_bytes or 0
        self._has_file = size_in_bytes is not None
        self._entries: list[AbortedTransaction] | None = None if size_in_bytes else []
        self.changes = self.synced_changes = 0
        """The number of changes to the file, and how many of them are synced to disk."""

    @property
    def exists(self) -> bool:
        return self._has_file

    @property
    def needs_sync(self) -> bool:
        return self.changes != self.synced_changes

    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def _load(self) -> list[AbortedTransaction]:
        data = self._files.read(self.path)
        if len(data) % _ENTRY.size:
            raise CorruptIndexError(f"{self.path} has {len(data)} bytes, not a multiple of {_ENTRY.size}")
        entries: list[AbortedTransaction] = []
        for version, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(data):
            if version != _VERSION:
                raise CorruptIndexError(f"{self.path} has an entry of version {version}; expected {_VERSION}")
            # The marker follows the data.
            if not (first_offset < last_offset and last_offset >= self.base_offset):
                raise CorruptIndexError(f"{self.path} has offsets {first_offset} to {last_offset} out of order")
            if entries and last_offset <= entries[-1].last_offset:
                raise CorruptIndexError(
                    f"{self.path} has last offset {last_offset} after last offset {entries[-1].last_offset}"
                )
            entries.append(AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset))
        return entries

    def check(self) -> None:
        """Raises CorruptIndexError if the index is damaged. Reads all of it, since aborted transactions are few."""
        self.entries()

    def append(self, transaction: AbortedTransaction) -> None:
        entries = self.entries()
        if entries and entries[-1].last_offset >= transaction.last_offset:
            raise ValueError(f"{self.path}: last offset {transaction.last_offset} is not greater than the last entry's")
        entries.append(transaction)

    def save(self) -> None:
        """Writes the entries that are not in the file yet."""
        if self._entries is None:
            return
        unsaved = b"".join(map(_pack, self._entries[self._size_in_bytes // _ENTRY.size :]))
        if unsaved:
            self._write(unsaved, self._size_in_bytes)

    def _write(self, data: bytes, position: int) -> None:
        """Writes entries at a position. Truncates the file first, which also removes the rest of a failed write."""
        file = self._files.open(self.path, create=True)
        self._has_file = True
        self.changes += 1
        try:
            file.truncate(position)
            self._size_in_bytes = position
            file.write_at(data, position)
        finally:
            file.close()
        self._size_in_bytes = position + len(data)

    def truncate_to(self, offset: int) -> None:
        """Removes the transactions that ended at or after `offset`."""
        remaining_entries = [entry for entry in self.entries() if entry.last_offset < offset]
        if len(remaining_entries) != len(self.entries()):
            self._keep(remaining_entries)

    def reset(self) -> None:
        """Removes all entries, even if the file cannot be read."""
        self._keep([])

    def forget(self) -> None:
        """Forgets all entries, but keeps the file until `replace` is called."""
        self._entries = []

    def replace(self) -> None:
        """Replaces the file by the entries in one step: a process that dies first leaves the damaged file."""
        entries = self.entries()
        if entries or self._has_file:
            data = b"".join(map(_pack, entries))
            self._files.write_atomically(self.path, data)
            self._has_file = True
            self._size_in_bytes = len(data)
            self.changes += 1

    def _keep(self, entries: list[AbortedTransaction]) -> None:
        self._entries = entries
        if self._size_in_bytes > len(entries) * _ENTRY.size:
            self._write(b"", len(entries) * _ENTRY.size)

    def overlapping(self, first_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the aborted transactions with records in `[first_offset, end_offset)`, and True if there are no more.

        Once an entry's last stable offset reaches the end, later segments cannot have more: every transaction that
        started before it was complete.
        """
        transactions: list[AbortedTransaction] = []
        for entry in self.entries():
            if entry.last_offset >= first_offset and entry.first_offset < end_offset:
                transactions.append(entry)
            if entry.last_stable_offset >= end_offset:
                return transactions, True
        return transactions, False


def _pack(entry: AbortedTransaction) -> bytes:
    return _ENTRY.pack(_VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)
