from pathlib import Path

import pytest

from headrace.common.errors import KafkaStorageError
from headrace.storage.files import FileSystem
from headrace.storage.leader_epoch_cache import EpochEntry, LeaderEpochFileCache


def make(directory: Path, *entries: tuple[int, int]) -> LeaderEpochFileCache:
    cache = LeaderEpochFileCache(directory, FileSystem())
    for entry in entries:
        cache.assign(*entry)
    return cache


def entries_of(cache: LeaderEpochFileCache) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in cache.entries]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (0, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (2, 20)),
        (5, (5, 33)),
        (6, (-1, -1)),
    ],
)
def test_end_offset_for_epoch(tmp_path: Path, asked: int, answer: tuple[int, int]) -> None:
    """KIP-101, and KIP-279 for the returned epoch: the largest one not above the requested epoch."""
    assert make(tmp_path, (0, 0), (2, 10), (5, 20)).end_offset_for(asked, 33) == answer


def test_unknown_older_epoch_ends_at_first_entry(tmp_path: Path) -> None:
    assert make(tmp_path, (4, 10), (5, 20)).end_offset_for(2, 33) == (2, 10)


def test_end_offset_is_undefined_without_entries(tmp_path: Path) -> None:
    cache = make(tmp_path)
    assert cache.end_offset_for(0, 33) == (-1, -1)
    assert cache.latest_epoch == -1
    assert cache.epoch_for_offset(0) is None


def test_epoch_for_offset(tmp_path: Path) -> None:
    cache = make(tmp_path, (1, 5), (3, 10))
    assert [cache.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [None, 1, 1, 3, 3]


@pytest.mark.parametrize(
    ("assigned", "entries"),
    [
        ((5, 25), [(0, 0), (2, 10), (5, 20)]),
        ((6, 25), [(0, 0), (2, 10), (5, 20), (6, 25)]),
        ((6, 20), [(0, 0), (2, 10), (6, 20)]),
        ((6, 15), [(0, 0), (2, 10), (6, 15)]),
        ((3, 15), [(0, 0), (2, 10), (3, 15)]),
        ((2, 5), [(0, 0), (2, 5)]),
        ((0, 0), [(0, 0)]),
    ],
)
def test_assign_removes_contradicting_entries(
    tmp_path: Path, assigned: tuple[int, int], entries: list[tuple[int, int]]
) -> None:
    cache = make(tmp_path, (0, 0), (2, 10), (5, 20))
    cache.assign(*assigned)
    assert entries_of(cache) == entries


@pytest.mark.parametrize("assigned", [(-1, 0), (0, -1)])
def test_rejects_negative_epoch_and_offset(tmp_path: Path, assigned: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"epoch {assigned[0]} and start offset {assigned[1]} must not be negative"):
        make(tmp_path).assign(*assigned)


@pytest.mark.parametrize(
    ("end", "entries"),
    [(21, [(0, 0), (2, 10), (5, 20)]), (20, [(0, 0), (2, 10)]), (11, [(0, 0), (2, 10)]), (10, [(0, 0)]), (0, [])],
)
def test_truncates_from_end(tmp_path: Path, end: int, entries: list[tuple[int, int]]) -> None:
    cache = make(tmp_path, (0, 0), (2, 10), (5, 20))
    cache.truncate_from_end(end)
    assert entries_of(cache) == entries


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (0, [(0, 0), (2, 10), (5, 20)]),
        (4, [(0, 4), (2, 10), (5, 20)]),
        (10, [(2, 10), (5, 20)]),
        (11, [(2, 11), (5, 20)]),
        (99, [(5, 99)]),
    ],
)
def test_truncates_from_start(tmp_path: Path, start: int, entries: list[tuple[int, int]]) -> None:
    cache = make(tmp_path, (0, 0), (2, 10), (5, 20))
    cache.truncate_from_start(start)
    assert entries_of(cache) == entries


def sync(cache: LeaderEpochFileCache, end_offset: int) -> None:
    write = cache.prepare_sync(end_offset)
    if write is not None:
        write()


def test_log_start_may_be_below_first_epoch(tmp_path: Path) -> None:
    cache = make(tmp_path, (2, 10))
    cache.truncate_from_start(5)
    assert entries_of(cache) == [(2, 10)]


def test_checkpoint_has_kafka_format(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    cache = make(tmp_path, (0, 0), (2, 10))
    assert not path.exists(), "an append does not wait for the file"
    sync(cache, 20)
    assert path.read_bytes() == b"0\n2\n0 0\n2 10\n"
    again = make(tmp_path)
    again.load()
    assert again.entries == [EpochEntry(0, 0), EpochEntry(2, 10)]
    cache.clear()
    sync(cache, 20)
    assert path.read_bytes() == b"0\n0\n"


def test_sync_writes_only_changes(tmp_path: Path) -> None:
    cache = make(tmp_path, (0, 0))
    sync(cache, 20)
    (tmp_path / "leader-epoch-checkpoint").unlink()
    cache.assign(0, 5)
    cache.truncate_from_end(9)
    cache.truncate_from_start(0)
    sync(cache, 20)
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_lacks_the_epoch_of_a_leader_without_records(tmp_path: Path) -> None:
    """A broker with many idle partitions would write a file for each of them after every election."""
    cache = make(tmp_path, (0, 0), (2, 10))
    sync(cache, 10)
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
    sync(cache, 11)
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n2 10\n"


def test_late_write_does_not_replace_newer_epochs(tmp_path: Path) -> None:
    cache = make(tmp_path, (0, 0))
    early = cache.prepare_sync(20)
    cache.assign(2, 10)
    late = cache.prepare_sync(20)
    assert early is not None
    assert late is not None
    late()
    early()
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n2 10\n"


def test_write_follows_a_renamed_directory(tmp_path: Path) -> None:
    """A new log with the name of a deleted one must not get its epochs."""
    (tmp_path / "orders-0").mkdir()
    cache = make(tmp_path / "orders-0", (0, 0))
    write = cache.prepare_sync(20)
    assert write is not None
    cache.rename_directory(tmp_path / "orders-0", tmp_path / "deleted")
    (tmp_path / "orders-0").mkdir()
    write()
    assert list((tmp_path / "orders-0").iterdir()) == []
    assert (tmp_path / "deleted" / "leader-epoch-checkpoint").exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"0\n1\n0 zero\n", "expected an epoch and an offset, found '0 zero'"),
        (b"0\n1\n0\n", "expected an epoch and an offset, found '0'"),
        (b"0\n1\n0 1 2\n", "expected an epoch and an offset, found '0 1 2'"),
        (b"0\n2\n2 0\n1 5\n", "epoch 1 with start offset 5 is out of order"),
        (b"0\n2\n1 5\n2 4\n", "epoch 2 with start offset 4 is out of order"),
        (b"0\n2\n0 0\n", "expected 2 entries, found 1"),
        (b"9\n0\n", "has unsupported version '9'; expected 0"),
    ],
)
def test_rejects_damaged_checkpoint(tmp_path: Path, content: bytes, named: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(content)
    with pytest.raises(KafkaStorageError, match=named) as refused:
        make(tmp_path).load()
    assert str(path) in str(refused.value)
