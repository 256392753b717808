"""File systems with injected faults and simulated power loss, for tests of code that stores data.

FaultyFileSystem fails chosen operations, runs full, or simulates a kill of the process:

    files = FaultyFileSystem()
    files.fail("sync", "*.log", errno.EIO)      # until files.heal()
    files.fill_up(room_bytes=100)               # the write that exceeds 100 bytes writes them, then raises ENOSPC
    files.kill_after(7)                         # the eighth change of the disk, and all later ones, raise Killed

PowerLossFileSystem also tracks durable content. `crash` turns the directory on the real disk into a state that a power
loss could leave:

    files = PowerLossFileSystem(tmp_path)
    ...                                         # use it, possibly until Killed is raised
    files.crash(Random(seed))                   # then reopen everything

Possible effects of a power loss, independently for each file and directory:

    file        Bytes up to the last `sync` are durable. Later changes are lost, kept, truncated at some point, or kept
                in some sectors only; an unsynced truncation may be undone. A file that was never synced may also
                contain garbage.
    directory   Names as of the last `sync_directory` are durable. Later creations, renames and removals survive up to
                some point, in order, as with a journaling file system. Syncing a file does not sync its name.

Operations: open, read, write, truncate, allocate, sync, rename, remove, make_directory, sync_directory, list
and set_modified. Both classes are thread-safe.
"""

import errno
import os
import shutil
import threading
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from headrace.common.ids import Random
from headrace.common.types import Buffer
from headrace.storage.files import DataFile, FileInfo, FileSystem

SECTOR_BYTES = 512

_READ_OPERATIONS = ("open", "read", "list")


class Killed(BaseException):
    """The simulated kill of the process. It is not an Exception, so the tested code does not handle it."""


@dataclass
class Fault:
    """A fault for one operation on matching paths. `hits` counts the failed operations."""

    operation: str
    pattern: str
    error: int
    skip: int
    times: int | None
    hits: int = 0

    def applies(self, operation: str, path: Path) -> bool:
        if operation != self.operation or not fnmatch(str(path), self.pattern):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True


class FaultyFile(DataFile):
    """A file that checks its file system for faults before each operation."""

    __slots__ = ("file_system", "tracked")

    def __init__(self, path: Path, fd: int, file_system: "FaultyFileSystem", tracked: object = None):
        super().__init__(path, fd)
        self.file_system = file_system
        self.tracked = tracked

    def read_at(self, size: int, position: int) -> bytes:
        self.file_system.before("read", self.path)
        return super().read_at(size, position)

    def write_at(self, data: Buffer, position: int) -> None:
        allowed, error = self.file_system.before_write(self.path, len(data))
        if allowed:
            self.file_system.changing(self, position)
            super().write_at(memoryview(data)[:allowed], position)
        if error is not None:
            raise error

    def truncate(self, size: int) -> None:
        self.file_system.before("truncate", self.path)
        self.file_system.changing(self, size)
        super().truncate(size)

    def allocate(self, size: int) -> None:
        self.file_system.before("allocate", self.path)
        super().allocate(size)

    def sync(self) -> None:
        self.file_system.before("sync", self.path)
        self.file_system.sync_file(self)


class FaultyFileSystem(FileSystem):
    """The real file system with injected faults; without faults it behaves normally."""

    def __init__(self, syncs: bool = True) -> None:
        """Skips fsync with `syncs=False`. That is faster, and enough for tests of kills and errors."""
        self.changes = 0
        """The number of operations that have changed the disk, or would have without a fault."""
        self._faults: list[Fault] = []
        self._room_bytes: int | None = None
        self._room_pattern = "*"
        self._kill_at: int | None = None
        self._torn_kill = False
        self._guard = threading.RLock()
        self._syncs = syncs

    # ---- faults

    def fail(
        self, operation: str, pattern: str = "*", error: int = errno.EIO, *, skip: int = 0, times: int | None = None
    ) -> Fault:
        """Fails an operation on paths that match the pattern. `*` also matches slashes.

        The first `skip` operations pass, the next `times` (default: all) fail.
        """
        fault = Fault(operation, pattern, error, skip, times)
        self._faults.append(fault)
        return fault

    def fill_up(self, room_bytes: int = 0, pattern: str = "*") -> None:
        """Limits the remaining space to `room_bytes`. Removing files frees no space; `heal` lifts the limit."""
        self._room_bytes, self._room_pattern = room_bytes, pattern

    def kill_after(self, changes: int, torn: bool = False) -> None:
        """Simulates a kill after this many more changes. After that nothing changes the disk until `heal`.

        With `torn`, the kill happens in the middle of the next change if that is a write.
        """
        self._kill_at, self._torn_kill = self.changes + changes, torn

    def heal(self) -> None:
        """Removes all faults and limits."""
        self._faults.clear()
        self._room_bytes = self._kill_at = None

    # ---- for files and operations

    def before(self, operation: str, path: Path) -> None:
        """Raises the error of an operation, if a fault applies."""
        with self._guard:
            if operation not in _READ_OPERATIONS:
                self._count_change()
            for fault in self._faults:
                if fault.applies(operation, path):
                    raise OSError(fault.error, os.strerror(fault.error), str(path))

    def _count_change(self) -> None:
        if self._kill_at is not None and self.changes >= self._kill_at:
            raise Killed
        self.changes += 1

    def before_write(self, path: Path, size: int) -> tuple[int, BaseException | None]:
        """Returns how many bytes to write, and the error to raise after that."""
        with self._guard:
            try:
                torn = self._torn_kill and self.changes == self._kill_at
                self.before("write", path)
            except Killed as killed:
                self._torn_kill = False
                return (size // 2 if torn else 0), killed
            if self._room_bytes is None or not fnmatch(str(path), self._room_pattern):
                return size, None
            allowed = min(size, self._room_bytes)
            self._room_bytes -= allowed
            if allowed == size:
                return size, None
            return allowed, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def changing(self, file: FaultyFile, position: int) -> None:
        """Called before a file is changed at or after a position."""

    def sync_file(self, file: FaultyFile) -> None:
        if self._syncs:
            os.fsync(file.fileno())

    # ---- FileSystem

    def open(self, path: Path, create: bool = False) -> DataFile:
        self.before("open", path)
        if create and not path.exists():
            with self._guard:
                self._count_change()
        opened = super().open(path, create)
        return FaultyFile(path, os.dup(opened.fileno()), self)

    def map(self, path: Path) -> Buffer:
        self.before("read", path)
        return super().map(path)

    def read(self, path: Path) -> bytes:
        self.before("read", path)
        return super().read(path)

    def list(self, path: Path) -> dict[str, FileInfo]:
        self.before("list", path)
        return super().list(path)

    def add_directory(self, path: Path) -> None:
        self.before("make_directory", path)
        super().add_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self.before("rename", source)
        super().rename(source, target)

    def set_modified(self, path: Path, time_ms: int) -> None:
        self.before("set_modified", path)
        super().set_modified(path, time_ms)

    def remove(self, path: Path) -> None:
        self.before("remove", path)
        super().remove(path)

    def remove_tree(self, path: Path) -> None:
        for name, info in sorted(super().list(path).items()):
            if info.is_directory:
                self.remove_tree(path / name)
            else:
                self.remove(path / name)
        self.before("remove", path)
        self.remove_directory(path)

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def sync_directory(self, path: Path) -> None:
        self.before("sync_directory", path)
        if self._syncs:
            super().sync_directory(path)


@dataclass
class _File:
    """A tracked file.

    `safe_bytes` are unchanged since the last sync. `last_seen` is the content at the power loss or before removal.
    """

    synced: bytes = b""
    was_synced: bool = False
    safe_bytes: int = 0
    last_seen: bytes = b""


@dataclass
class _Directory:
    """A tracked directory: the current entries, the durable entries, and the changes between them."""

    names: "dict[str, _File | _Directory]" = field(default_factory=dict)
    synced: "dict[str, _File | _Directory]" = field(default_factory=dict)
    changes: "list[dict[str, _File | _Directory | None]]" = field(default_factory=list)

    def change(self, changed: "dict[str, _File | _Directory | None]") -> None:
        """Sets entries in one step; None removes an entry."""
        _apply(self.names, changed)
        self.changes.append(changed)

    def sync(self) -> None:
        self.synced = dict(self.names)
        self.changes.clear()

    def after_crash(self, random: Random) -> "dict[str, _File | _Directory]":
        survived = random.choice((0, len(self.changes), random.randint(0, len(self.changes))))
        names = dict(self.synced)
        for changed in self.changes[:survived]:
            _apply(names, changed)
        return names


def _apply(names: "dict[str, _File | _Directory]", changed: "dict[str, _File | _Directory | None]") -> None:
    for name, node in changed.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class PowerLossFileSystem(FaultyFileSystem):
    """Simulates power loss for everything below `root`, which must exist. Its initial content counts as durable.

    Syncs are only recorded, not executed, so they are fast.
    """

    def __init__(self, root: Path):
        super().__init__()
        self.root = root
        self._tree = _scan(root)

    def _directory(self, path: Path) -> _Directory:
        node = self._tree
        for name in path.relative_to(self.root).parts:
            child = node.names.get(name)
            if child is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            assert isinstance(child, _Directory)
            node = child
        return node

    def crash(self, random: Random) -> None:
        """Simulates a power loss. Nothing may use the file system at that time; open files become invalid.

        Afterwards `root` contains the surviving files, which are durable, and all faults are removed.
        """
        with self._guard:
            self._record_content(self._tree, self.root)
            for entry in self.root.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            self._write_survivors(self._tree, self.root, random)
            self._tree = _scan(self.root)
            self.heal()

    def _record_content(self, node: _File | _Directory, path: Path) -> None:
        if isinstance(node, _File):
            node.last_seen = path.read_bytes()
        else:
            for name, child in node.names.items():
                self._record_content(child, path / name)

    def _record_before_removal(self, path: Path) -> None:
        node = self._directory(path.parent).names.get(path.name)
        if isinstance(node, _File):
            self._record_content(node, path)

    def _write_survivors(self, directory: _Directory, path: Path, random: Random) -> None:
        for name, node in sorted(directory.after_crash(random).items()):
            if isinstance(node, _Directory):
                (path / name).mkdir()
                self._write_survivors(node, path / name, random)
            else:
                (path / name).write_bytes(_content_after_crash(node, random))

    # ---- FileSystem

    def sync_file(self, file: FaultyFile) -> None:
        node = file.tracked
        if isinstance(node, _File):
            node.synced = os.pread(file.fileno(), file.size(), 0)
            node.safe_bytes = len(node.synced)
            node.was_synced = True

    def changing(self, file: FaultyFile, position: int) -> None:
        if isinstance(file.tracked, _File):
            file.tracked.safe_bytes = min(file.tracked.safe_bytes, position)

    def open(self, path: Path, create: bool = False) -> DataFile:
        with self._guard:
            existed = path.exists()
            file = super().open(path, create)
            assert isinstance(file, FaultyFile)
            if not existed:
                self._directory(path.parent).change({path.name: _File()})
            file.tracked = self._directory(path.parent).names[path.name]
            return file

    def add_directory(self, path: Path) -> None:
        with self._guard:
            super().add_directory(path)
            self._directory(path.parent).change({path.name: _Directory()})

    def rename(self, source: Path, target: Path) -> None:
        """Renames within one directory; Headrace has no other renames."""
        assert source.parent == target.parent, f"{source} and {target} are in different directories"
        with self._guard:
            self._record_before_removal(target)
            super().rename(source, target)
            directory = self._directory(source.parent)
            directory.change({target.name: directory.names[source.name], source.name: None})

    def remove(self, path: Path) -> None:
        with self._guard:
            existed = path.exists()
            if existed:
                self._record_before_removal(path)
            super().remove(path)
            if existed:
                self._directory(path.parent).change({path.name: None})

    def remove_directory(self, path: Path) -> None:
        with self._guard:
            super().remove_directory(path)
            self._directory(path.parent).change({path.name: None})

    def sync_directory(self, path: Path) -> None:
        with self._guard:
            self.before("sync_directory", path)
            if path.is_relative_to(self.root):
                self._directory(path).sync()


def _scan(path: Path) -> _Directory:
    directory = _Directory()
    for entry in path.iterdir():
        if entry.is_dir():
            directory.names[entry.name] = _scan(entry)
        else:
            content = entry.read_bytes()
            directory.names[entry.name] = _File(content, was_synced=True, safe_bytes=len(content))
    directory.sync()
    return directory


def _content_after_crash(file: _File, random: Random) -> bytes:
    old, current = file.synced, file.last_seen
    if current == old:
        return old
    outcome = random.randrange(5)
    if outcome == 0:
        return old
    if outcome == 1:
        return current
    if outcome == 2:
        return current[: random.randint(min(file.safe_bytes, len(current)), len(current))]
    if outcome == 3 and not file.was_synced:
        return random.randbytes(random.choice((0, len(current), random.randint(0, len(current)))))
    return _mix_sectors(old, current, random)


def _mix_sectors(old: bytes, new: bytes, random: Random) -> bytes:
    """Returns a mix of old and new sectors. An unwritten sector in the grown part of a file is zero."""
    smallest, largest = sorted((len(old), len(new)))
    size = random.choice((len(old), len(new), random.randint(smallest, largest)))
    new_probability = random.random()
    mixed = bytearray()
    while len(mixed) < size:
        source = new if random.random() < new_probability else old
        mixed += source[len(mixed) : len(mixed) + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
    return bytes(mixed[:size])
