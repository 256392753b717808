"""The disk, passed in. Everything in `storage` touches files through a FileSystem, so that tests can fail writes, fill
the disk and cut the power; see `headrace.testing.disks`.

A DataFile is closed when its last owner lets go of it. That is what keeps a slice valid that a reader still holds while
retention deletes its segment.
"""

import errno
import mmap
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from headrace.common.errors import KafkaStorageError
from headrace.common.types import Buffer

NO_HANDLE = (errno.EMFILE, errno.ENFILE)
"""A file could not be opened as too many are open: there may be room for it soon, and nothing was done."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, *NO_HANDLE)
"""No disk is broken; what could not be done may be tried again."""


class DataFile:
    """An open file, read and written at given positions."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path, fd: int):
        self.path = path
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        # The kernel may return less than there is (signals, 2 GiB limit).
        pieces = [data]
        missing = size - len(data)
        while missing and (piece := os.pread(self._fd, missing, position + size - missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def write_at(self, data: Buffer, position: int) -> None:
        """Writes all of `data` or raises; after an error some of it may have been written."""
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
    size: int
    modified_ms: int
    is_directory: bool


class FileSystem:
    """The machine's file system."""

    def open(self, path: Path, create: bool = False) -> DataFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return DataFile(path, os.open(path, flags, 0o644))

    def map(self, path: Path) -> Buffer:
        """A read-only view of a file that does not change any more."""
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
        """What is in a directory, by name."""
        found: dict[str, FileInfo] = {}
        with os.scandir(path) as entries:
            for entry in entries:
                stat = entry.stat()
                found[entry.name] = FileInfo(stat.st_size, stat.st_mtime_ns // 1_000_000, entry.is_dir())
        return found

    def make_directory(self, path: Path) -> None:
        """Makes a directory, and those above it, unless they are there. They survive a power cut."""
        if not path.is_dir():
            self.make_directory(path.parent)
            self.add_directory(path)
            self.sync_directory(path.parent)

    def add_directory(self, path: Path) -> None:
        """Makes one directory."""
        path.mkdir(exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        """Moves a file or directory; a file at the target is replaced."""
        source.replace(target)

    def set_modified(self, path: Path, time_ms: int) -> None:
        """Sets a file's time of modification, which retention goes by where records have no timestamps."""
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def remove(self, path: Path) -> None:
        """Removes a file; one that is gone already is no error."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        """Makes names created, renamed and removed in a directory survive a power cut."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def write_atomically(self, path: Path, data: Buffer, sync: bool = True) -> None:
        """Replaces a small file so that a reader finds the old content or the new, never a mixture."""
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
    """There is no room for the write, or no file handle; it can be tried again once there is."""


def storage_error(action: str, path: Path, error: OSError) -> KafkaStorageError:
    """The error that a caller gets for trouble with a file."""
    kind = DiskFullError if error.errno in DISK_FULL else KafkaStorageError
    return kind(f"cannot {action} {path}: {error.strerror or error}")


def remove_files(files: FileSystem, paths: list[Path]) -> None:
    for path in paths:
        files.remove(path)
