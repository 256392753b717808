"""Injected disk faults, and the possible states after a power loss."""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from headrace.storage.files import FileSystem
from headrace.testing.disks import SECTOR_BYTES, FaultyFileSystem, Killed, PowerLossFileSystem

# ---- faults


def test_passes_through_without_faults(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    files.make_directory(tmp_path / "x" / "y")
    files.write_atomically(tmp_path / "x" / "f", b"content")
    assert files.read(tmp_path / "x" / "f") == b"content"
    assert bytes(files.map(tmp_path / "x" / "f")) == b"content"
    assert sorted(files.list(tmp_path / "x")) == ["f", "y"]
    file = files.open(tmp_path / "x" / "f")
    file.write_at(b"CON", 0)
    file.truncate(4)
    file.sync()
    assert (file.read_at(10, 0), file.size()) == (b"CONt", 4)
    file.allocate(10)
    assert file.size() == 10
    files.rename(tmp_path / "x", tmp_path / "z")
    files.remove(tmp_path / "z" / "not there")
    files.remove_tree(tmp_path / "z")
    assert files.list(tmp_path) == {}


OPERATIONS: dict[str, Callable[[FileSystem, Path], object]] = {
    "open": lambda files, path: files.open(path),
    "read": lambda files, path: files.read(path),
    "write": lambda files, path: files.open(path).write_at(b"x", 0),
    "truncate": lambda files, path: files.open(path).truncate(0),
    "allocate": lambda files, path: files.open(path).allocate(10),
    "sync": lambda files, path: files.open(path).sync(),
    "rename": lambda files, path: files.rename(path, path.with_name("other")),
    "remove": lambda files, path: files.remove(path),
    "set_modified": lambda files, path: files.set_modified(path, 1000),
    "make_directory": lambda files, path: files.make_directory(path.with_name("file.new")),
    "list": lambda files, path: files.list(path.parent),
    "sync_directory": lambda files, path: files.sync_directory(path.parent),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_fails_until_healed(tmp_path: Path, operation: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    files = FaultyFileSystem()
    fault = files.fail(operation, f"{tmp_path}*", errno.EROFS)
    with pytest.raises(OSError) as raised:
        OPERATIONS[operation](files, path)
    assert (raised.value.errno, fault.hits) == (errno.EROFS, 1)
    assert path.read_bytes() == b"content"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file"]
    files.heal()
    OPERATIONS[operation](files, path)


def test_read_of_open_file_fails(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    file = files.open(tmp_path / "f", create=True)
    files.fail("read", "*/f")
    with pytest.raises(OSError, match="Input/output error"):
        file.read_at(1, 0)
    with pytest.raises(OSError, match="Input/output error"):
        files.map(tmp_path / "f")


def test_faults_match_path_and_count(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    good, bad = files.open(tmp_path / "a.index", create=True), files.open(tmp_path / "a.log", create=True)
    files.fail("sync", "*.log", skip=1, times=2)
    outcomes = []
    for _ in range(5):
        good.sync()
        try:
            bad.sync()
        except OSError as error:
            outcomes.append(error.errno)
        else:
            outcomes.append(0)
    assert outcomes == [0, errno.EIO, errno.EIO, 0, 0]


def test_full_disk_accepts_remaining_bytes(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    log, other = files.open(tmp_path / "a.log", create=True), files.open(tmp_path / "b", create=True)
    files.fill_up(5, "*.log")
    log.write_at(b"abc", 0)
    with pytest.raises(OSError, match="No space left") as raised:
        log.write_at(b"defg", 3)
    assert raised.value.errno == errno.ENOSPC
    other.write_at(b"elsewhere", 0)
    assert (tmp_path / "a.log").read_bytes() == b"abcde"
    with pytest.raises(OSError, match="No space left"):
        log.write_at(b"f", 5)
    files.heal()
    log.write_at(b"f", 5)
    assert (tmp_path / "a.log").read_bytes() == b"abcdef"


def work(files: FileSystem, directory: Path) -> None:
    """Seven changes: create, write, sync, rename, create a directory (and sync its parent), remove."""
    file = files.open(directory / "f", create=True)
    file.write_at(b"abcd", 0)
    file.sync()
    files.rename(directory / "f", directory / "g")
    files.make_directory(directory / "d")
    files.remove(directory / "g")


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        (0, {}),
        (1, {"f": b""}),
        (2, {"f": b"abcd"}),
        (3, {"f": b"abcd"}),
        (4, {"g": b"abcd"}),
        (5, {"g": b"abcd", "d": None}),
        (6, {"g": b"abcd", "d": None}),
    ],
)
def test_kill_after_number_of_changes(tmp_path: Path, changes: int, left: dict[str, bytes | None]) -> None:
    files = FaultyFileSystem()
    files.kill_after(changes)
    with pytest.raises(Killed):
        work(files, tmp_path)
    assert files.changes == changes
    with pytest.raises(Killed):  # changes in `finally` blocks of a killed process do not reach the disk
        files.remove(tmp_path / "g")
    found = {entry.name: None if entry.is_dir() else entry.read_bytes() for entry in tmp_path.iterdir()}
    assert found == left
    files.heal()
    files.remove(tmp_path / "g")


def test_kill_after_last_change_does_nothing(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    files.kill_after(7)
    work(files, tmp_path)
    assert files.changes == 7


def test_kill_can_tear_a_write(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    files.kill_after(1, torn=True)
    with pytest.raises(Killed):
        work(files, tmp_path)
    assert (tmp_path / "f").read_bytes() == b"ab"


def test_removes_tree_file_by_file(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    (tmp_path / "d").mkdir()
    for name in "abc":
        (tmp_path / "d" / name).touch()
    files.kill_after(2)
    with pytest.raises(Killed):
        files.remove_tree(tmp_path / "d")
    assert [entry.name for entry in (tmp_path / "d").iterdir()] == ["c"]


# ---- power loss


def outcomes(
    tmp_path: Path, scenario: Callable[[PowerLossFileSystem, Path], None], seeds: int = 60
) -> set[tuple[tuple[str, bytes], ...]]:
    """Returns all states that many power losses after the same operations leave: names and contents."""
    found = set()
    for seed in range(seeds):
        root = tmp_path / str(seed)
        root.mkdir()
        (root / "old").write_bytes(b"old content")
        files = PowerLossFileSystem(root)
        scenario(files, root)
        files.crash(Random(seed))
        found.add(tuple(sorted((entry.name, entry.read_bytes()) for entry in root.iterdir() if entry.is_file())))
    return found


OLD = ("old", b"old content")


def test_initial_content_is_durable(tmp_path: Path) -> None:
    assert outcomes(tmp_path, lambda files, root: None) == {(OLD,)}


def test_synced_content_is_durable(tmp_path: Path) -> None:
    def scenario(files: PowerLossFileSystem, root: Path) -> None:
        file = files.open(root / "new", create=True)
        file.write_at(b"content", 0)
        file.sync()
        files.sync_directory(root)

    assert outcomes(tmp_path, scenario) == {(("new", b"content"), OLD)}


def test_syncing_content_does_not_sync_name(tmp_path: Path) -> None:
    def scenario(files: PowerLossFileSystem, root: Path) -> None:
        file = files.open(root / "new", create=True)
        file.write_at(b"content", 0)
        file.sync()

    assert outcomes(tmp_path, scenario) == {(("new", b"content"), OLD), (OLD,)}


def test_syncing_name_does_not_sync_content(tmp_path: Path) -> None:
    def scenario(files: PowerLossFileSystem, root: Path) -> None:
        files.open(root / "new", create=True).write_at(b"content", 0)
        files.sync_directory(root)

    contents = {dict(found)["new"] for found in outcomes(tmp_path, scenario)}
    assert {b"", b"content", b"cont", bytes(7)} <= contents
    assert any(len(content) == 7 and content not in (b"content", bytes(7)) for content in contents), "no garbage"
    assert all(len(content) <= 7 for content in contents)


def test_only_unsynced_appended_bytes_may_be_lost(tmp_path: Path) -> None:
    def scenario(files: PowerLossFileSystem, root: Path) -> None:
        files.open(root / "old").write_at(b" and more", 11)

    contents = {dict(found)["old"] for found in outcomes(tmp_path, scenario)}
    assert {b"old content", b"old content and more", b"old content and"} <= contents
    assert all(content.startswith(b"old content") for content in contents)


def test_unsynced_truncation_may_be_undone(tmp_path: Path) -> None:
    def scenario(files: PowerLossFileSystem, root: Path) -> None:
        files.open(root / "old").truncate(3)

    contents = {dict(found)["old"] for found in outcomes(tmp_path, scenario)}
    assert {b"old", b"old content"} <= contents
    assert all(content.startswith(b"old") for content in contents)


def test_old_and_new_sectors_may_be_mixed(tmp_path: Path) -> None:
    def scenario(files: PowerLossFileSystem, root: Path) -> None:
        file = files.open(root / "new", create=True)
        file.write_at(b"a" * SECTOR_BYTES * 3, 0)
        file.sync()
        files.sync_directory(root)
        file.write_at(b"b" * SECTOR_BYTES * 4, 0)

    contents = {dict(found)["new"] for found in outcomes(tmp_path, scenario)}
    shapes = {
        "".join(chr(content[at]) for at in range(0, len(content), SECTOR_BYTES))
        for content in contents
        if len(content) % SECTOR_BYTES == 0
    }
    assert {"aaa", "bbbb"} < shapes
    assert any("ab" in shape and "ba" in shape for shape in shapes)
    assert any("\0" in shape for shape in shapes)


def test_name_changes_survive_in_order(tmp_path: Path) -> None:
    def scenario(files: PowerLossFileSystem, root: Path) -> None:
        files.open(root / "1", create=True)
        files.rename(root / "1", root / "2")
        files.remove(root / "old")
        files.open(root / "3", create=True)

    names = {tuple(name for name, _ in found) for found in outcomes(tmp_path, scenario, seeds=120)}
    assert names == {("old",), ("1", "old"), ("2", "old"), ("2",), ("2", "3")}


def test_replaced_file_may_reappear(tmp_path: Path) -> None:
    def scenario(files: PowerLossFileSystem, root: Path) -> None:
        files.write_atomically(root / "old", b"new", sync=False)

    contents = {dict(found)["old"] for found in outcomes(tmp_path, scenario)}
    assert {b"old content", b"new", b""} <= contents


def test_atomic_write_is_atomic(tmp_path: Path) -> None:
    def scenario(files: PowerLossFileSystem, root: Path) -> None:
        files.kill_after(scenario_changes)
        with suppress(Killed):
            files.write_atomically(root / "old", b"new")

    contents = set()
    for scenario_changes in range(8):
        directory = tmp_path / str(scenario_changes)
        directory.mkdir()
        contents |= {dict(found)["old"] for found in outcomes(directory, scenario, seeds=15)}
    assert contents == {b"old content", b"new"}


def test_directories_are_lost_with_their_content(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    for seed in range(20):
        files = PowerLossFileSystem(tmp_path / "root")
        made = tmp_path / "root" / f"made-{seed}"
        files.add_directory(made)
        files.write_atomically(made / "f", b"content")
        files.crash(Random(seed))
        assert not made.exists() or (made / "f").read_bytes() == b"content"
    left = {entry.name for entry in (tmp_path / "root").iterdir()}
    assert 0 < len(left) < 20


def test_directory_created_in_order_is_durable(tmp_path: Path) -> None:
    files = PowerLossFileSystem(tmp_path)
    files.make_directory(tmp_path / "a" / "b")
    files.write_atomically(tmp_path / "a" / "b" / "f", b"content")
    files.rename(tmp_path / "a" / "b", tmp_path / "a" / "c")
    files.sync_directory(tmp_path / "a")
    for seed in range(10):
        files.crash(Random(seed))
        assert (tmp_path / "a" / "c" / "f").read_bytes() == b"content"


def test_same_seed_gives_same_crash(tmp_path: Path) -> None:
    found = []
    for number in range(2):
        root = tmp_path / str(number)
        root.mkdir()
        files = PowerLossFileSystem(root)
        for name in "abcdef":
            files.open(root / name, create=True).write_at(name.encode() * 2000, 0)
        files.crash(Random(5))
        found.append({entry.name: entry.read_bytes() for entry in root.iterdir()})
    assert found[0] == found[1] != {}
