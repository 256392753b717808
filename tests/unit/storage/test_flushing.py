import errno
from pathlib import Path
from random import Random

import pytest
from tests.support.storage.log_sim import DeferredRunner
from tests.support.storage.logs import TP, MakeLog, MakeManager, append, batches_of, make_batch, new_log

from headrace.common.errors import KafkaStorageError
from headrace.common.ids import make_random, random_uuid
from headrace.records import RecordBatch
from headrace.storage.files import DiskFullError
from headrace.testing.clock import ManualClock
from headrace.testing.disks import FaultyFileSystem, PowerLossFileSystem


def test_append_does_not_flush(make_log: MakeLog) -> None:
    log = make_log()
    append(log, count=3)
    assert (log.recovery_point, log.log_end_offset) == (0, 3)
    log.flush()
    assert log.recovery_point == 3
    assert log.begin_flush() is None, "everything is on disk"


@pytest.mark.parametrize("seed", range(6))
def test_gap_at_the_start_of_a_log_syncs_its_topic_id(make_manager: MakeManager, tmp_path: Path, seed: int) -> None:
    """The gap moves the recovery point, which must not be on disk before the topic id."""
    disk = PowerLossFileSystem(tmp_path)
    manager = make_manager(files=disk)
    manager.start()
    topic_id = random_uuid(make_random(1))
    batch = make_batch()
    RecordBatch(batch).patch_base_offset(2**33)
    manager.create(TP, topic_id).append_as_follower(batch)
    manager.abandon()
    disk.crash(Random(seed))
    with make_manager(files=disk) as manager:
        log = manager.get(TP)
        assert log is not None
        assert log.topic_id == topic_id


def test_flushes_up_to_offset(make_log: MakeLog) -> None:
    log = make_log()
    for _ in range(4):
        append(log)
    log.flush(up_to=2)
    assert log.recovery_point == 2
    log.flush(up_to=1)
    assert log.recovery_point == 2
    log.flush(up_to=99)
    assert log.recovery_point == 4


def test_sealed_segment_is_synced_once(make_log: MakeLog) -> None:
    log = make_log(runner=DeferredRunner())
    append(log)
    log.roll()
    append(log)
    sealed = log.segments.first
    assert sealed.needs_sync
    log.flush()
    assert not sealed.needs_sync
    append(log)
    task = log.begin_flush()
    assert task is not None
    assert [item for item, _ in task.changes if item is sealed] == []


def test_flush_syncs_producer_snapshots(make_log: MakeLog) -> None:
    log = make_log(runner=DeferredRunner())
    append(log)
    log.roll()
    task = log.begin_flush()
    assert task is not None
    assert [file.path.name for file in task.opened if file.path.suffix == ".snapshot"] == [f"{1:020}.snapshot"]


def test_flush_messages_forces_flush(make_log: MakeLog) -> None:
    log = make_log({"flush.messages": 3})
    points = []
    for _ in range(7):
        append(log)
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3, 3, 6, 6]


def test_manager_flushes_after_flush_ms(make_manager: MakeManager, clock: ManualClock) -> None:
    properties = {"log.initial.task.delay.ms": 0, "log.flush.scheduler.interval.ms": 100}
    with make_manager(properties=properties, topic_properties={"flush.ms": 1000}) as manager:
        log = manager.create(TP)
        append(log)
        for passed_ms, point in ((0, 0), (900, 0), (99, 0), (1, 1)):
            clock.advance(passed_ms)
            manager.tick()
            assert log.recovery_point == point
        clock.advance(5000)
        manager.tick()
        append(log)
        clock.advance(100)
        manager.tick()
        assert log.recovery_point == 2, "the time counts from the last flush"


def test_flush_is_due_only_with_unflushed_records(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log({"flush.ms": 1000})
    clock.advance(5000)
    assert not log.is_flush_due()
    append(log)
    assert log.is_flush_due()
    log.flush()
    assert not log.is_flush_due()


def test_recovery_point_moves_after_sync(tmp_path: Path, clock: ManualClock) -> None:
    files = FaultyFileSystem()
    log = new_log(tmp_path, clock, files=files)
    append(log)
    fault = files.fail("sync", "*.log", errno.EIO)
    failures: list[BaseException] = []
    log.on_disk_failed = failures.append
    with pytest.raises(KafkaStorageError, match=r"Cannot flush .*orders-0: Input/output error"):
        log.flush()
    assert fault.hits == 1
    assert log.recovery_point == 0
    assert len(failures) == 1


def test_directory_sync_failure_raises(tmp_path: Path, clock: ManualClock) -> None:
    files = FaultyFileSystem()
    log = new_log(tmp_path, clock, files=files)
    append(log)
    files.fail(
        "sync_directory", "*/orders-0", errno.EIO, skip=1
    )  # the first sync is that of the leader epoch checkpoint
    with pytest.raises(KafkaStorageError, match=r"Cannot flush .*orders-0: Input/output error"):
        log.flush()
    assert log.recovery_point == 0


def test_distinguishes_full_disk_from_failed_disk(tmp_path: Path, clock: ManualClock) -> None:
    files = FaultyFileSystem()
    log = new_log(tmp_path, clock, files=files)
    append(log)
    files.fill_up(10)
    with pytest.raises(DiskFullError, match=r"Cannot append to .*0\.log: No space left on device"):
        append(log)
    assert log.log_end_offset == 1
    files.heal()
    append(log)
    assert [batch.base_offset for batch in batches_of(log)] == [0, 1]


def test_failed_flush_of_an_append_is_overdue(tmp_path: Path, clock: ManualClock) -> None:
    files = FaultyFileSystem()
    log = new_log(tmp_path, clock, {"flush.messages": 1}, files=files)
    batch = make_batch(producer_id=5, producer_epoch=0, base_sequence=0)
    files.fail("rename", "*leader-epoch-checkpoint*", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        log.append_as_leader(bytearray(batch), 0)
    assert (log.recovery_point, log.log_end_offset) == (0, 1)
    with pytest.raises(DiskFullError):
        log.flush_if_overdue()
    with pytest.raises(DiskFullError):
        log.append_as_leader(bytearray(batch), 0)
    files.heal()
    assert log.append_as_leader(bytearray(batch), 0).duplicate
    assert (log.recovery_point, log.log_end_offset) == (1, 1)


def test_flushes_in_background(tmp_path: Path, clock: ManualClock) -> None:
    runner = DeferredRunner()
    log = new_log(tmp_path, clock, runner=runner)
    append(log)
    log.flush_in_background()
    append(log)
    log.flush_in_background()
    assert len(runner.queue) == 1, "one at a time"
    assert log.recovery_point == 0
    runner.run_all()
    assert log.recovery_point == 1
    log.flush_in_background()
    runner.run_all()
    assert log.recovery_point == 2


def test_background_flush_failure(tmp_path: Path, clock: ManualClock) -> None:
    files = FaultyFileSystem()
    log = new_log(tmp_path, clock, files=files)
    append(log)
    files.fail("sync", "*.log")
    with pytest.raises(KafkaStorageError, match=r"Cannot flush .*orders-0: .*Input/output error"):
        log.flush_in_background()
    failures: list[BaseException] = []
    log.on_disk_failed = failures.append
    log.flush_in_background()
    assert [str(failure) for failure in failures]
    assert log.recovery_point == 0


def test_truncation_during_flush_keeps_recovery_point(tmp_path: Path, clock: ManualClock) -> None:
    """The synced records are truncated, and other records may have replaced them."""
    runner = DeferredRunner()
    log = new_log(tmp_path, clock, runner=runner)
    for _ in range(4):
        append(log)
    log.flush_in_background()
    log.truncate_to(2)
    append(log)
    append(log)
    runner.run_all()
    assert log.recovery_point <= 2


def test_roll_flushes_old_segment_in_background(tmp_path: Path, clock: ManualClock) -> None:
    runner = DeferredRunner()
    log = new_log(tmp_path, clock, runner=runner)
    append(log, count=3)
    log.roll()
    append(log)
    assert log.recovery_point == 0
    runner.run_all()
    assert log.recovery_point == 3


def test_close_flushes(make_log: MakeLog) -> None:
    log = make_log()
    append(log, count=3)
    log.close()
    assert log.recovery_point == 3
