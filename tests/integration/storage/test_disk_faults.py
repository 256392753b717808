"""Full and failing disks during writes: the caller gets an error, and no existing data is lost."""

import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.storage.log_checks import check_log

from headrace.common.errors import KafkaStorageError
from headrace.common.types import TopicPartition
from headrace.records import encode_rows
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.files import DiskFullError
from headrace.storage.loader import open_log
from headrace.storage.log import Log, LogContext
from headrace.storage.manager import LogManager
from headrace.testing.clock import ManualClock
from headrace.testing.disks import FaultyFileSystem

TP = TopicPartition("faulty", 0)
CONFIG = LogConfig.from_properties(
    {"segment.bytes": 4096, "index.interval.bytes": 256, "message.timestamp.after.max.ms": 2**62}
)


@pytest.fixture
def disk() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def log(tmp_path: Path, disk: FaultyFileSystem) -> Iterator[Log]:
    opened, _ = open_log(tmp_path / str(TP), TP, CONFIG, LogContext(files=disk, clock=ManualClock()))
    for number in range(10):
        append(opened, number)
    yield opened
    disk.heal()
    opened.abandon()


def append(log: Log, number: int, leader_epoch: int = 0, **fields: int) -> None:
    log.append_as_leader(encode_rows([(b"k%d" % number, b"v" * 200, 1000 + number, None)], **fields), leader_epoch)


def keys_of(log: Log) -> list[bytes | None]:
    return [batch.records().key(0) for batch in check_log(log)]


def reopened(log: Log, recovery_point: int = 0) -> Log:
    """Returns the log as the next process finds it after a kill."""
    log.abandon()
    again, _ = open_log(log.directory, TP, CONFIG, LogContext(clock=ManualClock()), recovery_point=recovery_point)
    return again


FIRST_TEN = [b"k%d" % number for number in range(10)]


@pytest.mark.parametrize("room_bytes", [0, 1, 60, 61, 150, 250])
def test_append_on_full_disk(log: Log, disk: FaultyFileSystem, room_bytes: int) -> None:
    disk.fill_up(room_bytes)
    for _ in range(3):
        with pytest.raises(DiskFullError, match=r"Cannot append to .*\.log: No space left"):
            append(log, 99)
        disk.fill_up(room_bytes)
    assert log.log_end_offset == 10
    assert keys_of(log) == FIRST_TEN
    disk.heal()
    append(log, 10)
    assert keys_of(log) == [*FIRST_TEN, b"k10"]
    assert keys_of(reopened(log)) == [*FIRST_TEN, b"k10"]


@pytest.mark.parametrize("truncate_fails", [False, True])
def test_kill_after_append_on_full_disk(log: Log, disk: FaultyFileSystem, truncate_fails: bool) -> None:
    disk.fill_up(100)
    if truncate_fails:
        disk.fail("truncate", "*.log", errno.EIO)
    with pytest.raises(DiskFullError):
        append(log, 99)
    disk.heal()
    again = reopened(log)
    assert keys_of(again) == FIRST_TEN
    append(again, 10)
    assert keys_of(again) == [*FIRST_TEN, b"k10"]


@pytest.mark.parametrize("truncate_fails", [False, True])
def test_clean_shutdown_after_append_on_full_disk(log: Log, disk: FaultyFileSystem, truncate_fails: bool) -> None:
    disk.fill_up(100)
    if truncate_fails:
        disk.fail("truncate", "*.log", errno.EIO)
    with pytest.raises(DiskFullError):
        append(log, 99)
    disk.heal()
    log.close()
    assert log.segments.active.path().stat().st_size == log.segments.active.size
    again, report = open_log(
        log.directory, TP, CONFIG, LogContext(clock=ManualClock()), clean=True, recovery_point=log.recovery_point
    )
    assert report.scanned_bytes == 0
    assert keys_of(again) == FIRST_TEN


def test_io_error_during_append(log: Log, disk: FaultyFileSystem) -> None:
    disk.fail("write", "*.log", errno.EIO, times=2)
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match=r"Cannot append to .*: Input/output error") as raised:
            append(log, 99)
        assert not isinstance(raised.value, DiskFullError)
    assert keys_of(log) == FIRST_TEN
    append(log, 10)
    assert keys_of(log) == [*FIRST_TEN, b"k10"]


def test_failed_append_does_not_consume_sequence(log: Log, disk: FaultyFileSystem) -> None:
    producer = {"producer_id": 7, "producer_epoch": 0}
    append(log, 10, **producer, base_sequence=0)
    disk.fill_up(10)
    with pytest.raises(DiskFullError):
        append(log, 11, **producer, base_sequence=1)
    disk.heal()
    append(log, 11, **producer, base_sequence=1)
    assert keys_of(log) == [*FIRST_TEN, b"k10", b"k11"]


@pytest.mark.parametrize("operation", ["open", "write", "rename", "truncate", "sync", "sync_directory"])
@pytest.mark.parametrize("pattern", ["*.log", "*.index", "*.timeindex", "*.snapshot*", "*leader-epoch*", "*"])
def test_any_failure_during_append(log: Log, disk: FaultyFileSystem, operation: str, pattern: str) -> None:
    """Includes rolls, snapshots and epoch changes. An append that raised is not in the log; one that returned is."""
    expected = list(FIRST_TEN)
    fault = disk.fail(operation, pattern, errno.ENOSPC, times=3)
    for number in range(10, 60):
        try:
            append(log, number, leader_epoch=number // 5)
        except KafkaStorageError:
            continue
        expected.append(b"k%d" % number)
    assert log.log_end_offset == len(expected)
    assert keys_of(log) == expected
    disk.heal()
    append(log, 60, leader_epoch=99)
    assert keys_of(log) == [*expected, b"k60"]
    assert keys_of(reopened(log)) == [*expected, b"k60"]
    if operation in ("open", "write") and pattern in ("*.log", "*.index", "*.timeindex", "*leader-epoch*"):
        assert fault.hits > 0 or (operation == "open" and pattern == "*leader-epoch*")


@pytest.mark.parametrize("operation", ["write", "rename", "sync", "sync_directory", "open"])
def test_failed_close_can_be_retried(log: Log, disk: FaultyFileSystem, operation: str) -> None:
    fault = disk.fail(operation, "*", errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        log.close()
    assert fault.hits
    disk.heal()
    log.close()
    again, report = open_log(
        log.directory, TP, CONFIG, LogContext(clock=ManualClock()), clean=True, recovery_point=log.recovery_point
    )
    assert (report.scanned_bytes, report.rebuilt_indexes) == (0, 0)
    assert keys_of(again) == FIRST_TEN


def test_recovery_point_moves_after_sync(log: Log, disk: FaultyFileSystem) -> None:
    before = log.recovery_point
    disk.fail("sync", "*.log", errno.EIO, times=1)
    with pytest.raises(KafkaStorageError, match=r"Cannot flush .*: Input/output error"):
        log.flush()
    assert log.recovery_point == before
    log.flush()
    assert log.recovery_point == 10


# ---- directories


def make_manager(tmp_path: Path, disk: FaultyFileSystem, **settings: object) -> LogManager:
    config = ManagerConfig.from_properties(
        {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}", "log.initial.task.delay.ms": 0, **settings}
    )
    return LogManager(config, config_of=lambda _: CONFIG, cluster_id="faults", files=disk, clock=ManualClock())


def in_each_directory(manager: LogManager) -> tuple[Log, Log]:
    first, second = manager.create(TopicPartition("t", 0)), manager.create(TopicPartition("t", 1))
    assert {log.directory.parent.name for log in (first, second)} == {"a", "b"}
    return (first, second) if first.directory.parent.name == "a" else (second, first)


def test_directory_with_failed_sync_goes_offline(tmp_path: Path, disk: FaultyFileSystem) -> None:
    manager = make_manager(tmp_path, disk).start()
    failed: list[tuple[str, list[TopicPartition]]] = []
    manager.on_directory_failed = lambda directory, lost: failed.append((directory.path.name, lost))
    bad, good = in_each_directory(manager)
    append(bad, 1)
    append(good, 1)
    disk.fail("sync", f"{tmp_path}/a/*", errno.EIO)
    with pytest.raises(KafkaStorageError, match="Cannot flush"):
        bad.flush()
    assert failed == [("a", [bad.tp])]
    assert manager.get(bad.tp) is None
    assert [directory.online for directory in manager.directories] == [False, True]
    assert "Input/output error" in str(manager.directories[0].failure)
    with pytest.raises(KafkaStorageError, match="closed"):
        append(bad, 2)
    append(good, 2)
    assert manager.create(TopicPartition("new", 0)).directory.parent.name == "b"
    manager.close()
    disk.heal()
    again = make_manager(tmp_path, disk).start()
    # The failed directory was not shut down cleanly and is recovered; the appended records are still there.
    assert keys_of(again.create(bad.tp)) == [b"k1"]
    assert keys_of(again.create(good.tp)) == [b"k1", b"k2"]
    assert again.load_reports[bad.tp].scanned_batches == 1
    assert again.load_reports[good.tp].scanned_batches == 0
    again.close()


@pytest.mark.parametrize("operation", ["write", "rename", "sync"])
def test_failed_checkpoint_takes_directory_offline(tmp_path: Path, disk: FaultyFileSystem, operation: str) -> None:
    manager = make_manager(tmp_path, disk).start()
    bad, good = in_each_directory(manager)
    disk.fail(operation, f"{tmp_path}/a/recovery-point-offset-checkpoint*", errno.EIO)
    manager.checkpoint_recovery_points()
    assert manager.get(bad.tp) is None
    assert manager.get(good.tp) is good
    manager.close()


@pytest.mark.parametrize("operation", ["list", "open"])
def test_unreadable_directory_is_offline_at_start(tmp_path: Path, disk: FaultyFileSystem, operation: str) -> None:
    with make_manager(tmp_path, disk) as manager:
        bad, good = in_each_directory(manager)
        append(bad, 1)
        append(good, 1)
    disk.fail(operation, f"{tmp_path}/a*", errno.EIO)
    manager = make_manager(tmp_path, disk).start()
    if operation == "list":
        assert manager.get(bad.tp) is None
        assert not manager.directories[0].online
    assert keys_of(manager.create(good.tp)) == [b"k1"]
    manager.close()
    disk.heal()
    again = make_manager(tmp_path, disk).start()
    assert keys_of(again.create(bad.tp)) == [b"k1"]
    again.close()


def test_start_fails_without_usable_directory(tmp_path: Path, disk: FaultyFileSystem) -> None:
    disk.fail("list", "*", errno.EACCES)
    disk.fail("make_directory", "*", errno.EACCES)
    with pytest.raises(KafkaStorageError, match=r"None of the specified log dirs can be used: .*Permission denied"):
        make_manager(tmp_path, disk).start()


def test_full_disk_keeps_directory_online(tmp_path: Path, disk: FaultyFileSystem) -> None:
    manager = make_manager(tmp_path, disk).start()
    bad, _ = in_each_directory(manager)
    append(bad, 1)
    disk.fill_up(10, f"{tmp_path}/a/*")
    with pytest.raises(DiskFullError):
        append(bad, 2)
    assert manager.get(bad.tp) is bad
    disk.heal()
    append(bad, 2)
    assert keys_of(bad) == [b"k1", b"k2"]
    manager.close()


@pytest.mark.parametrize("operation", ["open", "sync_directory"])
def test_too_many_open_files_keeps_directory_online(tmp_path: Path, disk: FaultyFileSystem, operation: str) -> None:
    with make_manager(tmp_path, disk) as manager:
        log = manager.create(TP)
        append(log, 0)
        disk.fail(operation, "*", errno.EMFILE)
        for flush in (log.flush, log.flush_in_background):
            with suppress(DiskFullError):
                flush()
        manager.checkpoint_recovery_points()
        manager.checkpoint_log_start_offsets()
        assert all(directory.online for directory in manager.directories)
        disk.heal()
        append(log, 1)
        log.flush()
        assert log.recovery_point == 2
