"""Truncation of a log."""

import errno
from pathlib import Path

import pytest
from tests.support.storage.logs import (
    START_MS,
    TP,
    MakeLog,
    append,
    batches_of,
    contents,
    end_transaction,
    make_batch,
    names_in,
    send,
)

from headrace.common.errors import KafkaStorageError
from headrace.records import ControlType
from headrace.storage.loader import open_log
from headrace.storage.log import FetchIsolation, Log
from headrace.testing.clock import ManualClock
from headrace.testing.disks import FaultyFileSystem


def segmented(make_log: MakeLog) -> Log:
    """Creates batches of two records at 0, 2 | 4, 6 | 8; later segments have newer timestamps and leader epochs."""
    log = make_log({"index.interval.bytes": 0, "file.delete.delay.ms": 0})
    for number in range(5):
        if number in (2, 4):
            log.roll()
        log.append_as_leader(make_batch(2, at=START_MS + number), leader_epoch=number // 2)
    log.update_high_watermark(log.log_end_offset)
    return log


def offsets(log: Log) -> list[int]:
    return [offset for offset, _, _ in contents(log)]


@pytest.mark.parametrize(
    ("offset", "left", "bases"),
    [
        (9, [0, 1, 2, 3, 4, 5, 6, 7], [0, 4, 8]),
        (8, [0, 1, 2, 3, 4, 5, 6, 7], [0, 4, 8]),
        (7, [0, 1, 2, 3, 4, 5], [0, 4]),
        (6, [0, 1, 2, 3, 4, 5], [0, 4]),
        (4, [0, 1, 2, 3], [0, 4]),
        (3, [0, 1], [0]),
        (0, [], [0]),
    ],
)
def test_truncation_removes_whole_batches(make_log: MakeLog, offset: int, left: list[int], bases: list[int]) -> None:
    log = segmented(make_log)
    assert log.truncate_to(offset) is True
    assert offsets(log) == left
    assert log.segments.bases == bases
    assert (log.log_end_offset, log.high_watermark) == (offset, offset)
    assert append(log).base_offset == offset
    assert offsets(log) == [*left, offset]


@pytest.mark.parametrize("offset", [10, 11, 1000])
def test_truncation_at_or_beyond_end_does_nothing(make_log: MakeLog, offset: int) -> None:
    log = segmented(make_log)
    assert log.truncate_to(offset) is False
    assert (log.log_end_offset, offsets(log)) == (10, list(range(10)))


def test_rejects_negative_truncation_offset(make_log: MakeLog) -> None:
    with pytest.raises(ValueError, match="Cannot truncate partition orders-0 to a negative offset"):
        segmented(make_log).truncate_to(-1)


def test_truncation_updates_derived_state(make_log: MakeLog) -> None:
    log = segmented(make_log)
    log.truncate_to(6)
    assert log.epochs.entries == [(0, 0), (1, 4)]
    assert log.end_offset_for_epoch(1) == (1, 6)
    assert log.end_offset_for_epoch(2) == (-1, -1)
    assert log.max_timestamp() == (START_MS + 2, 4)
    assert log.find_timestamp(START_MS + 3) is None
    active = log.segments.active
    assert active.offset_index.entries() == []
    assert active.time_index.entries() == []
    append(log, at=START_MS + 1)
    assert log.find_timestamp(START_MS + 2) == (START_MS + 2, 4)
    assert log.max_timestamp() == (START_MS + 2, 4)


def test_truncation_removes_files(make_log: MakeLog, tmp_path: Path) -> None:
    log = segmented(make_log)
    log.truncate_to(6)
    logs = {name for name in names_in(tmp_path / str(TP)) if ".log" in name or ".deleted" in name}
    assert logs == {"00000000000000000000.log", "00000000000000000004.log"}
    assert log.segments.active.path().stat().st_size == len(make_batch(2))
    assert max(log.snapshots.offsets) <= 6


def test_truncation_restores_producer_state(make_log: MakeLog) -> None:
    log = make_log()
    send(log, 1, 0, count=2)
    send(log, 1, 2)
    log.roll()
    send(log, 1, 3)
    send(log, 2, 0)
    log.truncate_to(3)
    assert log.producers.entries[1].last_sequence == 2
    assert 2 not in log.producers.entries
    assert send(log, 1, 2).duplicate
    assert send(log, 1, 3).base_offset == 3


def test_truncation_reopens_transaction(make_log: MakeLog) -> None:
    log = make_log()
    send(log, 1, transactional=True)
    append(log)
    end_transaction(log, 1, ControlType.ABORT)
    assert log.last_stable_offset == 3
    log.truncate_to(2)
    assert log.last_stable_offset == 0
    assert log.segments.active.txn_index.entries() == []
    end_transaction(log, 1, ControlType.COMMIT)
    assert log.last_stable_offset == 3
    assert log.read(0, 1000, FetchIsolation.TXN_COMMITTED).aborted == []


def test_completed_transactions_stay_stable_after_truncation(make_log: MakeLog) -> None:
    log = make_log()
    send(log, 1, transactional=True)
    end_transaction(log, 1, ControlType.COMMIT)
    append(log, count=1)
    append(log, count=1)
    log.truncate_to(3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 3)


def test_truncation_below_log_start_restarts_log(make_log: MakeLog) -> None:
    log = segmented(make_log)
    log.delete_records(5)
    assert log.truncate_to(3) is True
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 3, 3)
    assert log.segments.bases == [3]


@pytest.mark.parametrize("offset", [0, 7, 10, 1000])
def test_truncates_fully_and_starts_at_offset(make_log: MakeLog, tmp_path: Path, offset: int) -> None:
    log = segmented(make_log)
    send(log, 1)
    log.truncate_fully_and_start_at(offset)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (offset, offset, offset)
    assert (log.segments.bases, batches_of(log)) == ([offset], [])
    assert (log.epochs.entries, log.producers.entries, log.snapshots.offsets) == ([], {}, [])
    assert {name for name in names_in(tmp_path / str(TP)) if name[0].isdigit()} == {f"{offset:020d}.log"}
    assert send(log, 1, 5).base_offset == offset
    log.close()
    reopened, _ = open_log(
        log.directory, TP, log.config, log.context, clean=True, recovery_point=offset + 1, log_start_offset=offset
    )
    assert offsets(reopened) == [offset]


def test_lowers_checkpoint_before_changing_files(make_log: MakeLog) -> None:
    log = segmented(make_log)
    log.flush()
    seen: list[tuple[int, list[int]]] = []
    log.on_recovery_point_lowered = lambda: seen.append((log.recovery_point, offsets(log)))
    log.truncate_to(6)
    assert seen == [(6, list(range(10)))]
    log.truncate_to(5)
    log.truncate_fully_and_start_at(2)
    assert [point for point, _ in seen] == [6, 5, 2]


class BusyRunner:
    """Never runs the background work."""

    def submit(self, work: object, done: object) -> None:
        pass


@pytest.mark.parametrize("offset", [3, 4, 5])
def test_records_after_truncation_inside_a_batch_survive_crash(make_log: MakeLog, offset: int) -> None:
    """Truncation removes whole batches, so the log may end in a gap. Recovery would take a gap before the next segment
    for lost records, and delete that segment, if the recovery point were below it."""
    log = make_log(runner=BusyRunner())
    checkpoints = [0]
    log.on_recovery_point_lowered = lambda: checkpoints.append(log.recovery_point)
    append(log, count=3)
    append(log, count=3)
    assert log.recovery_point == 0
    log.truncate_to(offset)
    log.roll()
    append(log, count=3)
    log.abandon()
    reopened, _ = open_log(log.directory, TP, log.config, log.context, recovery_point=checkpoints[-1])
    assert offsets(reopened) == [0, 1, 2, *range(offset, offset + 3)]


def test_keeps_checkpoint_below_truncation_offset(make_log: MakeLog) -> None:
    log = segmented(make_log)
    assert log.recovery_point == 8, "rolling flushes"
    seen: list[int] = []
    log.on_recovery_point_lowered = lambda: seen.append(log.recovery_point)
    log.truncate_to(8)
    assert seen == []
    assert log.recovery_point == 8


def test_max_timestamp_after_truncation_without_timestamps(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log()
    append(log, at=START_MS)
    append(log, at=-1)
    append(log, at=START_MS + 5)
    log.truncate_to(2)
    assert log.max_timestamp() == (START_MS, 0)


def test_log_is_closed_after_failed_truncation(make_log: MakeLog) -> None:
    """Its state is unknown: only some files were changed."""
    files = FaultyFileSystem()
    log = segmented(lambda properties: make_log(properties, files=files))
    files.fail("truncate", "*.log", errno.EIO)
    with pytest.raises(KafkaStorageError, match="Cannot truncate"):
        log.truncate_to(5)
    with pytest.raises(KafkaStorageError, match="The log for partition orders-0 is closed"):
        append(log)


def test_closed_log_raises(make_log: MakeLog) -> None:
    log = segmented(make_log)
    log.close()
    with pytest.raises(KafkaStorageError, match="The log for partition orders-0 is closed"):
        log.truncate_to(1)
    with pytest.raises(KafkaStorageError, match="The log for partition orders-0 is closed"):
        log.truncate_fully_and_start_at(1)
