"""A file system that tracks synced bytes, and a runner that works only when told to."""

import os
from collections.abc import Callable
from pathlib import Path

from headrace.common.background import WorkResult
from headrace.common.types import Buffer
from headrace.storage.files import DataFile, FileSystem


class WatchedFile(DataFile):
    """Does not sync, but records the first unsynced byte of each file."""

    __slots__ = ("_disk", "_inode")

    def __init__(self, path: Path, fd: int, disk: "WatchedDisk"):
        super().__init__(path, fd)
        self._disk = disk
        self._inode = os.fstat(fd).st_ino

    def write_at(self, data: Buffer, position: int) -> None:
        super().write_at(data, position)
        unsynced = self._disk.unsynced_from
        unsynced[self._inode] = min(position, unsynced.get(self._inode, position))

    def sync(self) -> None:
        self._disk.unsynced_from.pop(self._inode, None)


class WatchedDisk(FileSystem):
    def __init__(self) -> None:
        self.unsynced_from: dict[int, int] = {}
        """By inode: the first byte that a power loss may remove."""
        self.open_files.max_files = 2  # files close and open again all the time

    def open(self, path: Path, create: bool = False) -> DataFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        is_new = create and not path.exists()
        file = WatchedFile(path, os.open(path, flags, 0o644), self)
        if is_new:
            self.unsynced_from.pop(os.fstat(file.fileno()).st_ino, None)  # the inode number of a removed file
        return file

    def sync_directory(self, path: Path) -> None:
        assert path.is_dir()

    def synced_bytes(self, path: Path) -> int:
        """Returns the number of bytes that survive a power loss."""
        if not path.exists():
            return 0
        found = path.stat()
        return min(found.st_size, self.unsynced_from.get(found.st_ino, found.st_size))


class StepRunner:
    """Runs work only when told to, like slow background threads; with `inline`, immediately."""

    def __init__(self, inline: bool):
        self._inline = inline
        self._waiting: list[tuple[Callable[[], object], Callable[[WorkResult], object]]] = []

    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None:
        self._waiting.append((work, done))
        if self._inline:
            self.run()

    def run(self) -> None:
        while self._waiting:
            work, done = self._waiting.pop(0)
            try:
                outcome = WorkResult(work())
            except Exception as error:  # noqa: BLE001 - as a real runner hands it on
                outcome = WorkResult(error=error)
            done(outcome)

    def forget(self) -> None:
        """Drops work that has not started, as a crash does."""
        self._waiting.clear()
