import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.support.storage.log_sim import DeferredRunner
from tests.support.storage.logs import TP, MakeLog, MakeManager, append, contents, make_batch

from headrace.common.background import WorkResult
from headrace.common.types import TopicPartition
from headrace.storage.files import DiskFullError
from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.storage.truncation import TruncationResults
from headrace.testing.clock import ManualClock
from headrace.testing.disks import FaultyFileSystem, PowerLossFileSystem

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
TPS = [TopicPartition("orders", number) for number in range(40)]


class RecordingFiles(FaultyFileSystem):
    """Records the syncs on the owner's thread, and the checkpoints in the background."""

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self.is_background = False
        self.on_owner: list[str] = []
        self.in_background: list[str] = []

    def before(self, operation: str, path: Path) -> None:
        super().before(operation, path)
        if operation in ("sync", "sync_directory"):
            (self.in_background if self.is_background else self.on_owner).append(path.name)


class RecordingRunner(DeferredRunner):
    """Tells the file system when background work runs."""

    def __init__(self, files: RecordingFiles):
        super().__init__()
        self._files = files

    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None:
        def run() -> object:
            self._files.is_background = True
            try:
                return work()
            finally:
                self._files.is_background = False

        super().submit(run, done)


def fill(manager: LogManager, tps: list[TopicPartition]) -> list[Log]:
    """Creates logs with ten flushed records each."""
    logs = [manager.create(tp) for tp in tps]
    for log in logs:
        for _ in range(10):
            append(log)
        log.flush()
    return logs


def offsets(log: Log) -> list[int]:
    return [offset for offset, _, _ in contents(log)]


def test_truncates_many_logs_without_a_sync_on_the_owners_thread(make_manager: MakeManager) -> None:
    files = RecordingFiles()
    runner = RecordingRunner(files)
    manager = make_manager(files=files, runner=runner).start()
    logs = fill(manager, TPS)
    manager.checkpoint_recovery_points()
    runner.run_all()
    files.on_owner.clear()
    files.in_background.clear()
    results: list[TruncationResults] = []
    manager.truncate_many(dict.fromkeys(TPS, 4), results.append)
    runner.run_all()
    assert results == [dict.fromkeys(TPS)]
    assert all(offsets(log) == [0, 1, 2, 3] and log.recovery_point == 4 for log in logs)
    assert files.on_owner == []
    assert files.in_background.count(RECOVERY_POINTS + ".tmp") == 1, "one write for all logs"
    append(logs[0])
    assert files.on_owner == [], "the truncation is on disk"
    manager.abandon()


def test_checkpoints_and_leader_epochs_are_not_written_on_the_owners_thread(
    make_manager: MakeManager, clock: ManualClock
) -> None:
    files = RecordingFiles()
    runner = RecordingRunner(files)
    manager = make_manager(files=files, runner=runner).start()
    logs = fill(manager, TPS)
    files.on_owner.clear()
    for log in logs:
        log.start_leader_epoch(3)
        log.append_as_leader(make_batch(), 3)
        log.flush_in_background()
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_start_offsets()
    clock.advance(2000)
    manager.tick()
    runner.run_all()
    assert all(log.recovery_point == 11 for log in logs)
    assert files.on_owner == []
    assert files.in_background.count("leader-epoch-checkpoint.tmp") == len(TPS)
    manager.abandon()


def test_compaction_writes_its_checkpoints_in_the_background(make_manager: MakeManager) -> None:
    files = RecordingFiles()
    runner = RecordingRunner(files)
    compacted: dict[str, object] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
    manager = make_manager(files=files, runner=runner, topic_properties=compacted).start()
    (log,) = fill(manager, TPS[:1])
    log.roll()
    append(log)
    runner.run_all()
    assert manager.clean_next() == TPS[0]
    files.on_owner.clear()
    runner.run_all()
    assert log.cleaned_up_to == 10
    assert not [name for name in files.on_owner if "checkpoint" in name]
    manager.abandon()


def test_log_that_is_about_to_be_truncated_is_not_compacted(make_manager: MakeManager) -> None:
    runner = DeferredRunner()
    compacted: dict[str, object] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
    manager = make_manager(runner=runner, topic_properties=compacted).start()
    (log,) = fill(manager, TPS[:1])
    log.roll()
    append(log)
    runner.run_all()
    assert manager.clean_next() == TPS[0]
    manager.truncate_many({TPS[0]: 4}, lambda _: None, is_current=lambda _: False)
    runner.run_one()
    runner.run_all()
    assert log.cleaned_up_to is None
    assert manager.clean_next() == TPS[0], "later it is"
    runner.run_all()
    assert log.cleaned_up_to == 10
    manager.close()


def test_restarts_logs_at_offsets(make_manager: MakeManager) -> None:
    with make_manager() as manager:
        log, other = fill(manager, TPS[:2])
        results: list[TruncationResults] = []
        manager.truncate_many({TPS[0]: 5, TPS[1]: 100, TPS[2]: 1}, results.append, fully=True)
        assert results == [{TPS[0]: None, TPS[1]: None}]
        assert [(log.log_start_offset, log.log_end_offset) for log in (log, other)] == [(5, 5), (100, 100)]


def test_nothing_to_truncate_changes_no_checkpoint(make_manager: MakeManager) -> None:
    files = RecordingFiles()
    with make_manager(files=files) as manager:
        (log,) = fill(manager, TPS[:1])
        files.on_owner.clear()
        results: list[TruncationResults] = []
        manager.truncate_many({TPS[0]: 10}, results.append)
        assert (results, offsets(log), files.on_owner) == ([{TPS[0]: None}], list(range(10)), [])


def test_log_of_a_new_leader_is_not_truncated(make_manager: MakeManager) -> None:
    runner = DeferredRunner()
    manager = make_manager(runner=runner).start()
    logs = fill(manager, TPS[:2])
    results: list[TruncationResults] = []
    manager.truncate_many(dict.fromkeys(TPS[:2], 4), results.append, is_current=lambda tp: tp == TPS[0])
    runner.run_all()
    assert results == [{TPS[0]: None}]
    assert [log.log_end_offset for log in logs] == [4, 10]
    manager.close()


def test_deleted_log_is_left_out(make_manager: MakeManager) -> None:
    runner = DeferredRunner()
    manager = make_manager(runner=runner).start()
    fill(manager, TPS[:2])
    results: list[TruncationResults] = []
    manager.truncate_many(dict.fromkeys(TPS[:2], 4), results.append)
    manager.delete(TPS[1])
    manager.create(TPS[1])
    runner.run_all()
    assert results == [{TPS[0]: None}]
    manager.close()


def test_flush_meanwhile_does_not_raise_the_checkpoint(make_manager: MakeManager, tmp_path: Path) -> None:
    runner = DeferredRunner()
    manager = make_manager(runner=runner).start()
    (log,) = fill(manager, TPS[:1])
    append(log)
    manager.truncate_many({TPS[0]: 4}, lambda _: None)
    log.flush()
    manager.checkpoint_recovery_points()
    runner.run_one()
    runner.run_one()
    assert log.recovery_point == 4, "the log is truncated"
    assert (tmp_path / "data" / RECOVERY_POINTS).read_text() == "0\n1\norders 0 4\n"
    manager.abandon()


def test_truncates_nothing_if_there_is_no_space_for_the_checkpoints(make_manager: MakeManager) -> None:
    files = FaultyFileSystem()
    with make_manager(files=files) as manager:
        (log,) = fill(manager, TPS[:1])
        files.fill_up(pattern="*checkpoint*")
        results: list[TruncationResults] = []
        manager.truncate_many({TPS[0]: 4}, results.append)
        files.heal()
        assert isinstance(results[0][TPS[0]], DiskFullError)
        assert (offsets(log), log.checkpoint_limit) == (list(range(10)), None)
        manager.truncate_many({TPS[0]: 4}, results.append)
        assert results[1:] == [{TPS[0]: None}]


@pytest.mark.parametrize("operation", ["sync", "truncate"])
def test_failed_truncation_takes_the_directory_offline(make_manager: MakeManager, operation: str) -> None:
    files = FaultyFileSystem()
    manager = make_manager("one", "two", files=files).start()
    fill(manager, TPS[:2])
    files.fail(operation, "*/one/*.log", errno.EIO)
    results: list[TruncationResults] = []
    manager.truncate_many(dict.fromkeys(TPS[:2], 4), results.append)
    failed = [tp for tp, error in results[0].items() if error is not None]
    assert [directory.online for directory in manager.directories] == [False, True]
    assert len(failed) == 1
    assert manager.get(failed[0]) is None
    manager.abandon()


def test_append_syncs_a_truncation_first(make_log: MakeLog) -> None:
    files = RecordingFiles()
    log = make_log(files=files)
    append(log, count=1)
    append(log, count=1)
    task = log.begin_truncation(1)
    assert task is not None
    files.on_owner.clear()
    append(log)
    assert files.on_owner == ["00000000000000000000.log", str(TP)]
    log.finish_truncation(task)
    assert log.begin_truncation(1) is not None
    files.on_owner.clear()
    log.start_leader_epoch(7)
    assert files.on_owner == ["00000000000000000000.log", str(TP)]


@pytest.mark.parametrize("seed", range(30))
def test_power_loss_after_a_truncation_loses_only_truncated_records(
    make_manager: MakeManager, tmp_path: Path, seed: int
) -> None:
    """The new records are not on disk: recovery must check them, although the log was flushed beyond them."""
    random = Random(seed)
    files = PowerLossFileSystem(tmp_path)
    runner = DeferredRunner()
    manager = make_manager(files=files, runner=runner).start()
    logs = fill(manager, TPS[:3])
    manager.checkpoint_recovery_points()
    runner.run_all()
    truncated: list[TruncationResults] = []
    manager.truncate_many(dict.fromkeys(TPS[:3], 4), truncated.append)
    for _ in range(random.randint(0, 4)):
        runner.run_one()
    if truncated:
        for log in logs:
            append(log, value=b"new", count=3)
    manager.abandon()
    files.crash(random)
    with make_manager(files=files) as manager:
        for tp in TPS[:3]:
            log = manager.get(tp)
            assert log is not None
            values = [value for _, _, value in contents(log)]
            assert values[:4] == [b"x" * 50] * 4
            assert set(values[4:]) in (set(), {b"new"}, {b"x" * 50})
