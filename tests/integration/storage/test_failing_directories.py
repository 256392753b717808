"""Disk failures under a log manager: which fail one call, which take a directory offline, and which are
retried. After each, the logs are opened again and must be intact."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.storage.log_checks import check_log, committed_records, latest_values
from tests.support.storage.log_sim import DeferredRunner

from headrace.common.background import BackgroundRunner
from headrace.common.errors import KafkaStorageError
from headrace.common.ids import make_random, random_uuid
from headrace.common.types import TopicPartition
from headrace.records import encode_rows
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.files import DiskFullError
from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.storage.retention import delete_old_segments
from headrace.testing.clock import ManualClock
from headrace.testing.disks import FaultyFileSystem

BAD, GOOD = TopicPartition("t", 0), TopicPartition("t", 1)
Make = Callable[..., LogManager]


@pytest.fixture
def disk() -> FaultyFileSystem:
    return FaultyFileSystem(syncs=False)


@pytest.fixture
def make(tmp_path: Path, disk: FaultyFileSystem) -> Iterator[Make]:
    """Returns a manager of two directories, a and b; the first of two partitions is in a."""
    clock = ManualClock()
    made: list[LogManager] = []

    def make_manager(runner: BackgroundRunner | None = None, **topic: object) -> LogManager:
        small = {"segment.bytes": 4096, "index.interval.bytes": 256, "file.delete.delay.ms": 0, "retention.ms": -1}
        config = LogConfig.from_properties({**small, **topic})
        settings = ManagerConfig.from_properties({"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"})
        manager = LogManager(
            settings, config_of=lambda _: config, cluster_id="c", files=disk, clock=clock, runner=runner, seed=1
        )
        made.append(manager)
        return manager.start()

    yield make_manager
    for manager in made:
        manager.abandon()


def append(log: Log, *numbers: int) -> None:
    for number in numbers:
        now_ms = log.context.clock.time_ms()
        log.append_as_leader(encode_rows([(b"k%d" % (number % 7), b"%d" % number + b"v" * 200, now_ms, None)]), 0)
        log.update_high_watermark(log.log_end_offset)


def both(manager: LogManager) -> tuple[Log, Log]:
    bad, good = manager.create(BAD), manager.create(GOOD)
    assert (bad.directory.parent.name, good.directory.parent.name) == ("a", "b")
    return bad, good


def numbers_of(log: Log) -> list[int]:
    return [int((batch.records().value(0) or b"").rstrip(b"v")) for batch in check_log(log)]


def check_only_a_is_offline(manager: LogManager) -> None:
    assert [directory.online for directory in manager.directories] == [False, True]
    assert manager.get(BAD) is None
    good = manager.get(GOOD)
    assert good is not None
    append(good, 999)


# ---- a full disk


def test_flush_on_full_disk_is_retried(make: Make, disk: FaultyFileSystem) -> None:
    manager = make(**{"flush.ms": 0})
    bad, _ = both(manager)
    append(bad, *range(5))
    disk.fill_up(0, "*/a/*")
    manager.flush_due_logs()
    assert (manager.get(BAD), bad.recovery_point) == (bad, 0)
    disk.heal()
    manager.flush_due_logs()
    assert bad.recovery_point == 5


def test_full_disk_keeps_old_checkpoint(make: Make, disk: FaultyFileSystem, tmp_path: Path) -> None:
    manager = make()
    bad, _ = both(manager)
    append(bad, *range(5))
    bad.flush()
    manager.checkpoint_recovery_points()
    before = (tmp_path / "a" / "recovery-point-offset-checkpoint").read_bytes()
    append(bad, *range(5, 10))
    bad.flush()
    disk.fill_up(3, "*/a/*")
    manager.checkpoint_recovery_points()
    assert manager.get(BAD) is bad
    assert (tmp_path / "a" / "recovery-point-offset-checkpoint").read_bytes() == before
    disk.heal()
    manager.abandon()
    assert numbers_of(make().create(BAD)) == list(range(10))


def test_retention_frees_full_disk(make: Make, disk: FaultyFileSystem) -> None:
    """All records have expired, but there is no space for a new segment."""
    manager = make(**{"retention.ms": 1000})
    bad, _ = both(manager)
    append(bad, *range(40))
    count = len(bad.segments)
    assert count > 2
    manager.clock.sleep(10)
    disk.fill_up(0)
    disk.fail("open", "*.log", errno.ENOSPC)
    assert manager.apply_retention() == count - 1
    assert manager.get(BAD) is bad
    disk.heal()
    assert manager.apply_retention() == 1
    assert (bad.log_start_offset, bad.log_end_offset) == (40, 40)
    append(bad, 40)
    assert numbers_of(bad) == [40]


def test_compaction_on_full_disk_is_retried(make: Make, disk: FaultyFileSystem, tmp_path: Path) -> None:
    manager = make(**{"cleanup.policy": "compact"})
    bad, _ = both(manager)
    append(bad, *range(60))
    expected = latest_values(committed_records(bad))
    disk.fill_up(1000, "*.cleaned")
    assert manager.clean_next() == BAD
    assert bad.cleaned_up_to is None
    assert not list((tmp_path / "a" / str(BAD)).glob("*.cleaned"))
    assert latest_values(committed_records(bad)) == expected
    disk.heal()
    before = bad.size_in_bytes
    assert manager.clean_next() == BAD
    assert bad.cleaned_up_to == bad.segments.active.base_offset
    assert bad.size_in_bytes < before
    assert latest_values(committed_records(bad)) == expected
    check_log(bad)


def test_truncation_without_checkpoint_on_full_disk_does_nothing(make: Make, disk: FaultyFileSystem) -> None:
    manager = make()
    bad, _ = both(manager)
    append(bad, *range(30))
    bad.flush()
    disk.fill_up(0, "*/a/*")
    for offset in (12, 0):
        with pytest.raises(DiskFullError, match="checkpoint"):
            bad.truncate_to(offset)
    assert (bad.log_start_offset, bad.log_end_offset, bad.recovery_point) == (0, 30, 30)
    assert numbers_of(bad) == list(range(30))
    disk.heal()
    assert bad.truncate_to(12)
    append(bad, 12)
    assert numbers_of(bad) == list(range(13))


@pytest.mark.parametrize("what", ["*.snapshot*", "*-checkpoint*", "*cleanshutdown*", "*index"])
def test_shutdown_on_full_disk_is_not_clean(make: Make, disk: FaultyFileSystem, tmp_path: Path, what: str) -> None:
    manager = make()
    bad, good = both(manager)
    append(bad, *range(25))
    append(good, *range(25))
    fault = disk.fail("write", f"*/a/{what}", errno.ENOSPC)
    manager.close()
    assert fault.hits
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    disk.heal()
    again = make()
    for tp in (BAD, GOOD):
        assert numbers_of(again.create(tp)) == list(range(25))
    assert again.load_reports[GOOD].scanned_batches == 0


def test_create_on_full_disk_can_be_retried(make: Make, disk: FaultyFileSystem) -> None:
    manager = make()
    topic_id = random_uuid(make_random(1))
    disk.fill_up(10)
    with pytest.raises(DiskFullError):
        manager.create(BAD, topic_id)
    assert manager.get(BAD) is None
    disk.heal()
    log = manager.create(BAD, topic_id)
    assert log.topic_id == topic_id
    append(log, *range(3))
    manager.abandon()
    again = make()
    found = again.get(BAD)
    assert found is not None
    assert found.topic_id == topic_id
    assert numbers_of(found) == [0, 1, 2]


def test_writes_missing_topic_id_later(make: Make, disk: FaultyFileSystem) -> None:
    """The process was killed between creating the directory and writing the topic id."""
    manager = make()
    manager.create(BAD)
    manager.abandon()
    topic_id = random_uuid(make_random(1))
    again = make()
    assert again.create(BAD, topic_id).topic_id == topic_id
    again.abandon()
    found = make().get(BAD)
    assert found is not None
    assert found.topic_id == topic_id


# ---- a failing disk


def test_append_with_failed_forced_flush(make: Make, disk: FaultyFileSystem) -> None:
    manager = make(**{"flush.messages": 1})
    bad, _ = both(manager)
    append(bad, 0)
    disk.fail("sync", "*/a/*")
    with pytest.raises(KafkaStorageError, match="Cannot flush"):
        append(bad, 1)
    check_only_a_is_offline(manager)


def test_background_flush_failure(make: Make, disk: FaultyFileSystem) -> None:
    runner = DeferredRunner()
    manager = make(runner, **{"flush.ms": 0})
    bad, good = both(manager)
    append(bad, *range(5))
    append(good, *range(5))
    manager.flush_due_logs()
    disk.fail("sync", "*/a/*")
    runner.run_all()
    check_only_a_is_offline(manager)
    assert good.recovery_point == 5


@pytest.mark.parametrize("operation", ["truncate", "rename", "sync", "sync_directory"])
def test_failed_truncation_takes_directory_offline(make: Make, disk: FaultyFileSystem, operation: str) -> None:
    """The state of the files is unknown: the log must not be used before it is opened again."""
    manager = make()
    bad, _ = both(manager)
    append(bad, *range(40))
    bad.flush()
    disk.fail(operation, f"*/a/{BAD}*")
    with pytest.raises(KafkaStorageError, match="Cannot truncate"):
        bad.truncate_to(13)
    check_only_a_is_offline(manager)
    with pytest.raises(KafkaStorageError, match="closed"):
        append(bad, 99)
    disk.heal()
    manager.abandon()
    found = numbers_of(make().create(BAD))
    assert found == list(range(len(found)))
    assert len(found) >= 13


def test_failed_rename_keeps_log(make: Make, disk: FaultyFileSystem) -> None:
    manager = make()
    bad, _ = both(manager)
    append(bad, *range(3))
    disk.fail("rename", f"*/a/{BAD}")
    with pytest.raises(KafkaStorageError, match="Cannot rename"):
        manager.delete(BAD)
    append(bad, 3)
    manager.abandon()
    disk.heal()
    assert numbers_of(make().create(BAD)) == list(range(4))


def test_failed_sync_of_deletion_takes_directory_offline(make: Make, disk: FaultyFileSystem) -> None:
    manager = make()
    both(manager)
    disk.fail("sync_directory", "*/a")
    with pytest.raises(KafkaStorageError, match="Cannot rename"):
        manager.delete(BAD)
    check_only_a_is_offline(manager)


@pytest.mark.parametrize("operation", ["open", "write", "sync", "truncate"])
def test_compaction_on_a_failing_disk(make: Make, disk: FaultyFileSystem, operation: str) -> None:
    manager = make(**{"cleanup.policy": "compact"})
    bad, _ = both(manager)
    append(bad, *range(60))
    expected = latest_values(committed_records(bad))
    fault = disk.fail(operation, "*/a/*.cleaned")
    assert manager.clean_next() == BAD
    assert fault.hits
    check_only_a_is_offline(manager)
    manager.abandon()
    disk.heal()
    assert latest_values(committed_records(opened(make(**{"cleanup.policy": "compact"})))) == expected


@pytest.mark.parametrize("operation", ["rename", "sync_directory"])
@pytest.mark.parametrize("skip", range(6))
def test_failed_swap_takes_directory_offline(make: Make, disk: FaultyFileSystem, operation: str, skip: int) -> None:
    manager = make(**{"cleanup.policy": "compact"})
    bad, _ = both(manager)
    append(bad, *range(60))
    expected = latest_values(committed_records(bad))
    disk.fail(operation, f"*/a/{BAD}*", skip=skip)
    manager.clean_next()
    check_only_a_is_offline(manager)
    manager.abandon()
    disk.heal()
    log = opened(make(**{"cleanup.policy": "compact"}))
    assert latest_values(committed_records(log)) == expected
    assert log.log_end_offset == 60


def opened(manager: LogManager) -> Log:
    log = manager.get(BAD)
    assert log is not None
    check_log(log)
    return log


def test_files_that_cannot_be_removed_are_removed_at_next_start(make: Make, disk: FaultyFileSystem) -> None:
    manager = make()
    bad, _ = both(manager)
    append(bad, *range(40))
    bad.delete_records(30)
    disk.fail("remove", "*.deleted")
    assert delete_old_segments(bad) > 0
    append(bad, 40)
    assert list(bad.directory.glob("*.deleted"))
    manager.close()
    disk.heal()
    log = opened(make())
    assert not list(log.directory.glob("*.deleted"))
    assert numbers_of(log) == list(range(30, 41))


def test_log_deleted_during_flush(make: Make) -> None:
    """The directory to sync was renamed, which is not a disk failure."""
    runner = DeferredRunner()
    manager = make(runner, **{"flush.ms": 0})
    bad, _ = both(manager)
    append(bad, 1)
    manager.flush_due_logs()
    manager.delete(BAD)
    runner.run_all()
    assert all(directory.online for directory in manager.directories)
    append(manager.create(BAD), 1)


# ---- outdated checkpoints


def test_recreated_log_does_not_inherit_checkpoints(make: Make, disk: FaultyFileSystem) -> None:
    """Killed after the deletion and before the checkpoints were written, so they contain offsets of the old log."""
    manager = make()
    bad, _ = both(manager)
    append(bad, *range(100))
    bad.flush()
    bad.delete_records(90)
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_start_offsets()
    disk.fail("open", "*-checkpoint.tmp", errno.ENOSPC)
    manager.delete(BAD)
    manager.tick()
    manager.abandon()
    disk.heal()
    again = make()
    assert again.get(BAD) is None
    append(again.create(BAD), *range(10))
    again.abandon()
    log = opened(make())
    assert (log.log_start_offset, numbers_of(log)) == (0, list(range(10)))


def test_starting_over_below_the_log_start(make: Make) -> None:
    """As a follower does if its leader still has the deleted records. The old log start must not come back."""
    manager = make()
    bad, _ = both(manager)
    append(bad, *range(60))
    bad.delete_records(50)
    manager.checkpoint_log_start_offsets()
    bad.truncate_fully_and_start_at(20)
    append(bad, *range(20, 30))
    bad.flush()
    manager.abandon()
    log = opened(make())
    assert (log.log_start_offset, numbers_of(log)) == (20, list(range(20, 30)))


@pytest.mark.parametrize(
    "damage", [lambda data: bytes(len(data)), lambda data: data[:12], lambda data: data[: -len(data) // 3]]
)
def test_retention_ignores_damaged_time_index(make: Make, damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """A time index without its newest entries would make its segment look old."""
    retained: dict[str, object] = {"retention.ms": 500}
    manager = make(**retained)
    bad, _ = both(manager)
    for number in range(40):
        append(bad, number)
        manager.clock.sleep(0.01)
    manager.close()
    for path in (tmp_path / "a" / str(BAD)).glob("*.timeindex"):
        path.write_bytes(damage(path.read_bytes()))
    again = make(**retained)
    assert again.apply_retention() == 0
    assert numbers_of(opened(again)) == list(range(40))
