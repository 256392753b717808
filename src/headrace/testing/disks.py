"""Disks that fail, and disks whose power is cut: FileSystems for tests of anything that stores data.

FaultyFileSystem fails the operations that it is told to fail, runs full, or kills the process that uses it:

    files = FaultyFileSystem()
    files.fail("sync", "*.log", errno.EIO)      # until files.heal()
    files.fill_up(room_bytes=100)               # the write that passes 100 bytes writes them, then raises ENOSPC
    files.kill_after(7)                         # the eighth change to the disk, and all that follow, raise Killed

PowerLossFileSystem does that too, and knows what has been made durable. `crash` turns the directory on the real disk
into one that could be found after a power cut:

    files = PowerLossFileSystem(tmp_path)
    ...                                         # use it, perhaps until Killed is raised
    files.crash(Random(seed))                   # then open everything again

What a power cut may do, for each file and each directory on its own:

    file        Bytes up to the last `sync` are safe. Later changes are lost, there, cut off somewhere, or there for
                some sectors only; a truncation that was not synced may be undone. A file that was never synced may
                also hold garbage.
    directory   Names as of the last `sync_directory` are safe. Later creations, renames and removals survive up to
                some point, in their order, as a journal does it. Syncing a file does not save its name.

Names of operations: open, read, write, truncate, allocate, sync, rename, remove, make_directory, sync_directory, list
and set_modified. Both classes may be used by several threads.
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

_READING = ("open", "read", "list")


class Killed(BaseException):
    """The process was killed here. Not an Exception, so that nothing between here and the test takes care of it."""


@dataclass
class Fault:
    """Operations that are to fail. `hits` counts those that did."""

    operation: str
    pattern: str
    error: int
    skip: int
    times: int | None
    hits: int = 0

    def strikes(self, operation: str, path: Path) -> bool:
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
    """Asks its disk before it does anything, and tells it what was done."""

    __slots__ = ("disk", "tracked")

    def __init__(self, path: Path, fd: int, disk: "FaultyFileSystem", tracked: object = None):
        super().__init__(path, fd)
        self.disk = disk
        self.tracked = tracked

    def read_at(self, size: int, position: int) -> bytes:
        self.disk.before("read", self.path)
        return super().read_at(size, position)

    def write_at(self, data: Buffer, position: int) -> None:
        admitted, error = self.disk.before_write(self.path, len(data))
        if admitted:
            self.disk.changing(self, position)
            super().write_at(memoryview(data)[:admitted], position)
        if error is not None:
            raise error

    def truncate(self, size: int) -> None:
        self.disk.before("truncate", self.path)
        self.disk.changing(self, size)
        super().truncate(size)

    def allocate(self, size: int) -> None:
        self.disk.before("allocate", self.path)
        super().allocate(size)

    def sync(self) -> None:
        self.disk.before("sync", self.path)
        self.disk.sync_file(self)


class FaultyFileSystem(FileSystem):
    """A disk that fails when told to. Without orders it is the machine's own."""

    def __init__(self, syncs: bool = True) -> None:
        """Without `syncs` nothing waits for the machine's disk: quicker, where only kills and errors matter."""
        self.changes = 0
        """How many operations have changed the disk, or would have without their error."""
        self._faults: list[Fault] = []
        self._room_bytes: int | None = None
        self._room_pattern = "*"
        self._kill_at: int | None = None
        self._torn_kill = False
        self._guard = threading.RLock()
        self._syncs = syncs

    # ---- orders

    def fail(
        self, operation: str, pattern: str = "*", error: int = errno.EIO, *, skip: int = 0, times: int | None = None
    ) -> Fault:
        """Fails an operation on paths that match, `*` standing for slashes too: the first `skip` of them pass, the
        next `times` (all, if not given) fail."""
        fault = Fault(operation, pattern, error, skip, times)
        self._faults.append(fault)
        return fault

    def fill_up(self, room_bytes: int = 0, pattern: str = "*") -> None:
        """Leaves room for so many more bytes. Removing files makes no room; `heal` does."""
        self._room_bytes, self._room_pattern = room_bytes, pattern

    def kill_after(self, changes: int, torn: bool = False) -> None:
        """Kills the process when so many more changes have been made; with `torn`, halfway through the next one if it
        is a write. From then on nothing changes the disk any more, until `heal`."""
        self._kill_at, self._torn_kill = self.changes + changes, torn

    def heal(self) -> None:
        """Everything works again."""
        self._faults.clear()
        self._room_bytes = self._kill_at = None

    # ---- what files and operations ask

    def before(self, operation: str, path: Path) -> None:
        """Raises what an operation is to raise."""
        with self._guard:
            if operation not in _READING:
                self._count()
            for fault in self._faults:
                if fault.strikes(operation, path):
                    raise OSError(fault.error, os.strerror(fault.error), str(path))

    def _count(self) -> None:
        if self._kill_at is not None and self.changes >= self._kill_at:
            raise Killed
        self.changes += 1

    def before_write(self, path: Path, size: int) -> tuple[int, BaseException | None]:
        """How many bytes are to be written, and what is to be raised then."""
        with self._guard:
            try:
                torn = self._torn_kill and self.changes == self._kill_at
                self.before("write", path)
            except Killed as killed:
                self._torn_kill = False
                return (size // 2 if torn else 0), killed
            if self._room_bytes is None or not fnmatch(str(path), self._room_pattern):
                return size, None
            admitted = min(size, self._room_bytes)
            self._room_bytes -= admitted
            if admitted == size:
                return size, None
            return admitted, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def changing(self, file: FaultyFile, position: int) -> None:
        """A file is about to change from a position on."""

    def sync_file(self, file: FaultyFile) -> None:
        if self._syncs:
            os.fsync(file.fileno())

    # ---- FileSystem

    def open(self, path: Path, create: bool = False) -> DataFile:
        self.before("open", path)
        if create and not path.exists():
            with self._guard:
                self._count()
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
    """`safe_bytes` have not changed since the last sync. `last_seen` is the content when the file lost its name, or
    when the power was cut."""

    synced: bytes = b""
    was_synced: bool = False
    safe_bytes: int = 0
    last_seen: bytes = b""


@dataclass
class _Directory:
    """`names` are those there are, `synced` those that are safe, `changes` lead from one to the other."""

    names: "dict[str, _File | _Directory]" = field(default_factory=dict)
    synced: "dict[str, _File | _Directory]" = field(default_factory=dict)
    changes: "list[dict[str, _File | _Directory | None]]" = field(default_factory=list)

    def change(self, changed: "dict[str, _File | _Directory | None]") -> None:
        """Sets names, or removes those that are None, in one step."""
        _apply(self.names, changed)
        self.changes.append(changed)

    def sync(self) -> None:
        self.synced = dict(self.names)
        self.changes.clear()

    def after_crash(self, random: Random) -> "dict[str, _File | _Directory]":
        survived = random.choice((0, len(self.changes), random.randint(0, len(self.changes))))
        found = dict(self.synced)
        for changed in self.changes[:survived]:
            _apply(found, changed)
        return found


def _apply(names: "dict[str, _File | _Directory]", changed: "dict[str, _File | _Directory | None]") -> None:
    for name, node in changed.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class PowerLossFileSystem(FaultyFileSystem):
    """Everything below `root`, which exists already. What is there at the beginning counts as durable.

    Syncing costs nothing here: it is remembered, not done.
    """

    def __init__(self, root: Path):
        super().__init__()
        self.root = root
        self._tree = _scan(root)

    def _directory(self, path: Path) -> _Directory:
        node = self._tree
        for name in path.relative_to(self.root).parts:
            found = node.names[name]
            assert isinstance(found, _Directory)
            node = found
        return node

    def crash(self, random: Random) -> None:
        """The power is cut now. Call it when nothing uses the disk any more; files that are still open are of no use.

        All faults are healed. `root` then holds what survived, and that is durable.
        """
        with self._guard:
            self._see(self._tree, self.root)
            for entry in self.root.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            self._write_survivors(self._tree, self.root, random)
            self._tree = _scan(self.root)
            self.heal()

    def _see(self, node: _File | _Directory, path: Path) -> None:
        if isinstance(node, _File):
            node.last_seen = path.read_bytes()
        else:
            for name, child in node.names.items():
                self._see(child, path / name)

    def _lose_name(self, path: Path) -> None:
        node = self._directory(path.parent).names.get(path.name)
        if isinstance(node, _File):
            self._see(node, path)

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
        """Within one directory, as all renames in Headrace are."""
        assert source.parent == target.parent, f"{source} and {target} are in different directories"
        with self._guard:
            self._lose_name(target)
            super().rename(source, target)
            directory = self._directory(source.parent)
            directory.change({target.name: directory.names[source.name], source.name: None})

    def remove(self, path: Path) -> None:
        with self._guard:
            existed = path.exists()
            if existed:
                self._lose_name(path)
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
    """Each sector as it was or as it is; where a file has grown, a sector that was not written is zero."""
    smallest, largest = sorted((len(old), len(new)))
    size = random.choice((len(old), len(new), random.randint(smallest, largest)))
    share_of_new = random.random()
    mixed = bytearray()
    while len(mixed) < size:
        source = new if random.random() < share_of_new else old
        mixed += source[len(mixed) : len(mixed) + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
    return bytes(mixed[:size])
