"""File access. `storage` reads and writes files only through a FileSystem.

- Tests replace it to fail writes, fill the disk and simulate power loss: see `headrace.testing.disks`.
- A DataFile closes when its last reference is dropped. A reader can therefore use a slice of a segment that retention
  has deleted.
"""

import errno
import mmap
import os
import shutil
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from headrace.common.errors import KafkaStorageError
from headrace.common.types import Buffer
from headrace.storage.open_files import TOO_MANY_OPEN_FILES, OpenFiles

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, *TOO_MANY_OPEN_FILES)
"""No space or no file descriptor: the disk has not failed, and the operation may be retried."""


class DataFile:
    """An open file with positioned reads and writes."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path, fd: int):
        self.path = path
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def read_at(self, size: int, position: int) -> bytes:
        """Reads `size` bytes; fewer only at the end of the file."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        # The kernel may return fewer bytes than the file has (signals, 2 GiB limit).
        pieces = [data]
        remaining = size - len(data)
        while remaining and (piece := os.pread(self._fd, remaining, position + size - remaining)):
            pieces.append(piece)
            remaining -= len(piece)
        return b"".join(pieces)

    def write_at(self, data: Buffer, position: int) -> None:
        """Writes all of `data`. If it raises, part of the data may have been written."""
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def sync(self) -> None:
        os.fsync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class FileInfo(NamedTuple):
    """A directory entry."""

    size: int
    modified_ms: int
    is_directory: bool


class FileSystem:
    """The file operations of `storage`, on the operating system's file system. Test file systems override them."""

    @cached_property
    def open_files(self) -> OpenFiles:
        """The files that stay open between two uses."""
        return OpenFiles()

    def open(self, path: Path, create: bool = False) -> DataFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return DataFile(path, os.open(path, flags, 0o644))

    def map(self, path: Path) -> Buffer:
        """Returns a read-only memory map of a file that no longer changes."""
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return b""
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def exists(self, path: Path) -> bool:
        return path.exists()

    def list(self, path: Path) -> dict[str, FileInfo]:
        """Returns the entries of a directory, by name."""
        listing: dict[str, FileInfo] = {}
        with os.scandir(path) as entries:
            for entry in entries:
                stat = entry.stat()
                listing[entry.name] = FileInfo(stat.st_size, stat.st_mtime_ns // 1_000_000, entry.is_dir())
        return listing

    def make_directory(self, path: Path) -> None:
        """Creates a directory and its missing parents, so that they survive a power loss."""
        if not path.is_dir():
            self.make_directory(path.parent)
            self.add_directory(path)
            self.sync_directory(path.parent)

    def add_directory(self, path: Path) -> None:
        """Creates one directory, without its parents and without a sync."""
        path.mkdir(exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        """Renames a file or directory; replaces an existing target file."""
        source.replace(target)

    def set_modified(self, path: Path, time_ms: int) -> None:
        """Sets a file's modification time, which retention uses for records without timestamps."""
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def remove(self, path: Path) -> None:
        """Removes a file; does nothing if it does not exist."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        """Syncs a directory, so that its created, renamed and removed files survive a power loss."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def write_atomically(self, path: Path, data: Buffer, sync: bool = True) -> None:
        """Replaces a small file atomically: readers see either the old or the new content."""
        temporary = path.with_name(path.name + ".tmp")
        self.remove(temporary)
        file = self.open(temporary, create=True)
        try:
            file.write_at(data, 0)
            if sync:
                file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        if sync:
            self.sync_directory(path.parent)


class DiskFullError(KafkaStorageError):
    """The disk is full or the process has too many open files; the operation may be retried later."""


def storage_error(action: str, path: Path, error: OSError) -> KafkaStorageError:
    """Returns the KafkaStorageError for an OSError: a DiskFullError if the operation may be retried."""
    kind = DiskFullError if error.errno in DISK_FULL else KafkaStorageError
    return kind(f"Cannot {action} {path}: {error.strerror or error}")


def remove_files(files: FileSystem, paths: list[Path]) -> None:
    for path in paths:
        files.remove(path)
