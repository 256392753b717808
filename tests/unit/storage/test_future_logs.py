"""Future logs: creation, cancellation, replacement, loading, failed directories."""

import shutil
from pathlib import Path

import pytest
from tests.support.storage.copying import copy_log, start_move
from tests.support.storage.logs import TP, MakeManager, append, batches_of, make_batch, send

from headrace.common.errors import InvalidTopicError, KafkaStorageError, LogDirNotFoundError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.storage.checkpoints import CLEANER_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from headrace.storage.directory import LogDirectory, future_directory_name, parse_directory_name, parse_future_name
from headrace.storage.log import Log
from headrace.storage.manager import LogManager

ID = Uuid.parse("L4tkSDvtSWyV2FJpQYyZlA")
OTHER_ID = Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ")


def log_of(manager: LogManager, tp: TopicPartition = TP) -> Log:
    log = manager.get(tp)
    assert log is not None
    return log


def other_directory(manager: LogManager, tp: TopicPartition = TP) -> LogDirectory:
    return next(directory for directory in manager.directories if directory is not manager.directory_of(tp))


def moving(manager: LogManager, records: int = 10) -> Log:
    """Creates a log with records and its empty future log, which is returned."""
    log = manager.create(TP, ID)
    for _ in range(records):
        append(log)
    return start_move(manager, TP, other_directory(manager))


def raw(log: Log) -> list[bytes]:
    return [bytes(batch.raw) for batch in batches_of(log)]


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir())


def test_names_of_future_directories() -> None:
    tp = TopicPartition("a.b-c_d", 12)
    name = future_directory_name(tp, ID)
    assert name == f"a.b-c_d-12.{ID.hex}-future"
    assert parse_future_name(name) == tp
    assert parse_directory_name(name) is None
    for other in ("orders-0", "orders-0-future", "orders-0.12-delete", "orders-x.12-future", "orders-01.12-future"):
        assert parse_future_name(other) is None


def test_replaces_the_log_by_its_copy(make_manager: MakeManager, tmp_path: Path) -> None:
    with make_manager("one", "two", topic_properties={"segment.bytes": 1024}) as manager:
        future = moving(manager)
        source, target = manager.directory_of(TP), manager.futures.directory_of(TP)
        assert source is not None
        assert target is not None
        assert future.topic_id == ID
        assert names(target.path) == [future.directory.name]
        assert (source.partitions, target.partitions) == (1, 1)
        before = log_of(manager)
        expected = raw(before)
        assert copy_log(manager, TP)
        log = log_of(manager)
        assert log is future
        assert manager.directory_of(TP) is target
        assert len(manager.futures) == 0
        assert raw(log) == expected
        assert log.high_watermark == before.high_watermark
        assert names(target.path) == [str(TP)]
        assert [name.endswith("-delete") for name in names(source.path)] == [True]
        assert (source.partitions, target.partitions) == (0, 1)
        append(log)
        with pytest.raises(KafkaStorageError, match="closed"):
            append(before)
        expected = raw(log)
    with make_manager("one", "two") as manager:
        assert manager.directory_of(TP) is not None
        assert raw(log_of(manager)) == expected
        manager.tick()
        assert names(tmp_path / source.path.name) == []


def test_the_copy_takes_over_what_is_not_in_its_batches(make_manager: MakeManager) -> None:
    with make_manager("one", "two", topic_properties={"segment.bytes": 1024}) as manager:
        log = manager.create(TP, ID)
        for sequence in range(5):
            send(log, 7, sequence)
        log.delete_records(4)
        log.start_leader_epoch(9)  # it has not written a record yet
        log.cleaned_up_to = 3
        start_move(manager, TP, other_directory(manager))
        copy_log(manager, TP)
        moved = log_of(manager)
        assert moved is not log
        assert (moved.log_start_offset, moved.log_end_offset, moved.cleaned_up_to) == (4, 5, 3)
        assert moved.epochs.latest_epoch == 9
        assert send(moved, 7, 4).duplicate
        assert send(moved, 7, 5).base_offset == 5
        assert not moved.is_directory_synced
        moved.flush()
        assert moved.is_directory_synced


@pytest.mark.parametrize("clean", [True, False])
def test_a_move_survives_a_restart(make_manager: MakeManager, clean: bool) -> None:
    manager = make_manager("one", "two").start()
    moving(manager, 40)
    copy_log(manager, TP, max_steps=3)
    future = manager.futures.get(TP)
    assert future is not None
    copied, expected = future.log_end_offset, raw(log_of(manager))
    assert 0 < copied < 40
    if clean:
        manager.close()
    else:
        manager.abandon()
    with make_manager("one", "two") as manager:
        future = manager.futures.get(TP)
        assert future is not None
        assert future.log_end_offset == copied
        if clean:
            assert future.recovery_point == copied
        copy_log(manager, TP)
        assert raw(log_of(manager)) == expected


def test_cancels_a_move(make_manager: MakeManager) -> None:
    with make_manager("one", "two") as manager:
        future = moving(manager)
        target = manager.futures.directory_of(TP)
        assert target is not None
        copy_log(manager, TP, max_steps=2)
        manager.futures.delete(TP)
        manager.futures.delete(TP)
        assert manager.futures.get(TP) is None
        assert future.directory.name.endswith("-delete")
        assert target.partitions == 0
        manager.checkpoint_recovery_points()
        assert TP not in target.recovery_point_checkpoint.offsets
        start_move(manager, TP, target)
        assert copy_log(manager, TP)


@pytest.mark.parametrize("stray", [True, False])
def test_a_deleted_log_takes_its_copy_along(make_manager: MakeManager, stray: bool) -> None:
    with make_manager("one", "two") as manager:
        moving(manager)
        copy_log(manager, TP, max_steps=2)
        if stray:
            manager.move_stray_log(TP)
        else:
            manager.delete(TP)
        assert len(manager.futures) == 0
        for directory in manager.directories:
            assert all(name.endswith(("-delete", "-stray")) for name in names(directory.path))
        manager.create(TP, OTHER_ID)


def test_does_not_compact_a_log_that_moves(make_manager: MakeManager) -> None:
    topic = {"cleanup.policy": "compact", "segment.bytes": 1024, "min.cleanable.dirty.ratio": 0}
    with make_manager("one", "two", topic_properties=topic) as manager:
        moving(manager)
        assert manager.clean_next() is None
        copy_log(manager, TP)
        assert manager.clean_next() == TP
        target = manager.directory_of(TP)
        assert target is not None
        assert TP in target.cleaner_checkpoint.offsets
        assert (target.path / CLEANER_CHECKPOINT).exists()


def test_checkpoints_have_the_copy_in_its_directory(make_manager: MakeManager) -> None:
    with make_manager("one", "two") as manager:
        future = moving(manager)
        copy_log(manager, TP, max_steps=2)
        future.flush()
        manager.checkpoint_recovery_points()
        target = manager.futures.directory_of(TP)
        assert target is not None
        assert (target.path / RECOVERY_POINT_CHECKPOINT).read_text().splitlines()[
            2
        ] == f"orders 0 {future.recovery_point}"
        assert future.recovery_point > 0


def test_creating_a_future_log_fails(make_manager: MakeManager) -> None:
    with make_manager("one", "two", "three") as manager:
        long = TopicPartition("x" * 216, 0)  # 216 + "-0." + 32 + "-future" = 258
        manager.create(long, ID)
        with pytest.raises(InvalidTopicError, match="too long to move"):
            start_move(manager, long, other_directory(manager, long))
        manager.create(TP, ID)
        other = other_directory(manager)
        third = next(d for d in manager.directories if d not in (other, manager.directory_of(TP)))
        manager.fail_directory(third, "broken")
        with pytest.raises(KafkaStorageError, match="which is offline"):
            start_move(manager, TP, other)


def test_finds_directories(make_manager: MakeManager, tmp_path: Path) -> None:
    with make_manager("one", "two") as manager:
        assert manager.futures.find_directory(str(tmp_path / "two")) is manager.directories[1]
        with pytest.raises(LogDirNotFoundError, match="is not in log"):
            manager.futures.find_directory(str(tmp_path / "three"))
        manager.fail_directory(manager.directories[1], "broken")
        with pytest.raises(KafkaStorageError, match="is offline"):
            manager.futures.find_directory(str(tmp_path / "two"))


def test_creates_a_log_in_its_preferred_directory(make_manager: MakeManager) -> None:
    with make_manager("one", "two") as manager:
        two = manager.directories[1]
        for number in range(3):
            manager.futures.prefer(TopicPartition("t", number), two)
            manager.create(TopicPartition("t", number))
            assert manager.directory_of(TopicPartition("t", number)) is two
        manager.futures.prefer(TopicPartition("t", 3), two)
        manager.fail_directory(two, "broken")
        manager.create(TopicPartition("t", 3))
        assert manager.directory_of(TopicPartition("t", 3)) is manager.directories[0]


def test_failed_directory_of_the_copy(make_manager: MakeManager) -> None:
    with make_manager("one", "two") as manager:
        moving(manager)
        target = manager.futures.directory_of(TP)
        assert target is not None
        manager.fail_directory(target, "broken")
        assert TP not in manager.futures
        assert append(log_of(manager)).base_offset == 10


def test_failed_directory_of_the_log(make_manager: MakeManager) -> None:
    """The copy stays: with the other directory, the next start continues the move."""
    manager = make_manager("one", "two").start()
    moving(manager)
    copy_log(manager, TP, max_steps=2)
    source = manager.directory_of(TP)
    assert source is not None
    manager.fail_directory(source, "broken")
    assert manager.get(TP) is None
    assert TP in manager.futures
    manager.close()
    with make_manager("one", "two") as manager:
        assert copy_log(manager, TP)


def test_a_copy_without_log_is_set_aside(make_manager: MakeManager, tmp_path: Path) -> None:
    """For example, the disk with the log was replaced by an empty one: a new log begins."""
    with make_manager("one", "two") as manager:
        future = moving(manager)
        copy_log(manager, TP, max_steps=2)
        source, target = log_of(manager).directory, future.directory.parent
    source.rename(tmp_path / "lost")
    with make_manager("one", "two") as manager:
        assert manager.get(TP) is None
        assert TP in manager.futures
        manager.create(TP, ID)
        assert TP not in manager.futures
        assert [name for name in names(target) if name.endswith("-stray")]


def test_a_crash_in_the_middle_of_a_replacement(make_manager: MakeManager, tmp_path: Path) -> None:
    """The new log has its name, and the old one still has it, too."""
    with make_manager("one", "two") as manager:
        moving(manager)
        copy_log(manager, TP)
        append(log_of(manager))
        expected, home = raw(log_of(manager)), manager.directory_of(TP)
        assert home is not None
        old = next(directory.path for directory in manager.directories if directory is not home)
        (deleted,) = [path for path in old.iterdir() if path.name.endswith("-delete")]
    deleted.rename(old / str(TP))
    with make_manager("one", "two") as manager:
        assert all(directory.online for directory in manager.directories)
        assert raw(log_of(manager)) == expected
        assert str(manager.directory_of(TP)) == str(home.path)
        manager.tick()
        assert names(old) == []


@pytest.mark.parametrize("how", ["other topic", "other records"])
def test_two_logs_with_different_records_take_a_directory_offline(make_manager: MakeManager, how: str) -> None:
    for name, epoch in (("one", 3), ("two", 4)):
        with make_manager(name) as manager:
            log = manager.create(TP, OTHER_ID if how == "other topic" and name == "two" else ID)
            for _ in range(2):
                log.append_as_leader(make_batch(), 1)
            log.append_as_leader(make_batch(), epoch)
    with make_manager("one", "two") as manager:
        assert [directory.online for directory in manager.directories] == [True, False]


def test_a_second_future_log_is_deleted(make_manager: MakeManager, tmp_path: Path) -> None:
    with make_manager("one", "two", "three") as manager:
        future = moving(manager)
        copy_log(manager, TP, max_steps=2)
        path = future.directory
        (free,) = {"one", "two", "three"} - {path.parent.name, log_of(manager).directory.parent.name}
    shutil.copytree(path, tmp_path / free / path.name)
    with make_manager("one", "two", "three") as manager:
        assert len(manager.futures) == 1
        manager.tick()
        left = [name for directory in manager.directories for name in names(directory.path)]
        assert len(left) == 2
        assert copy_log(manager, TP)
