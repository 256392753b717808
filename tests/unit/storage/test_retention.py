import dataclasses
import errno
from pathlib import Path

import pytest
from tests.support.storage.logs import (
    START_MS,
    TP,
    MakeLog,
    Properties,
    append,
    contents,
    make_batch,
    names_in,
    new_log,
)

from headrace.common.background import Scheduler
from headrace.common.errors import OffsetOutOfRangeError
from headrace.storage.cleaner import CleanerConfig, finish_cleaning, plan_cleaning
from headrace.storage.log import Log
from headrace.storage.retention import delete_old_segments
from headrace.testing.clock import ManualClock
from headrace.testing.disks import FaultyFileSystem

SIZE = len(make_batch())


def segmented(make_log: MakeLog, properties: Properties, count: int = 4, *, step_ms: int = 1000) -> Log:
    """Creates segments of one record each, each `step_ms` newer than the previous; the last is active."""
    log = make_log({"file.delete.delay.ms": 0, **properties})
    for number in range(count):
        append(log, at=START_MS + number * step_ms)
        if number < count - 1:
            log.roll()
    return log


def offsets(log: Log) -> list[int]:
    return [record[0] for record in contents(log)]


# ---- by time


@pytest.mark.parametrize(("passed_ms", "deleted"), [(1000, 0), (1001, 1), (3000, 2), (3001, 3)])
def test_deletes_segments_by_time(make_log: MakeLog, clock: ManualClock, passed_ms: int, deleted: int) -> None:
    log = segmented(make_log, {"retention.ms": 1000})
    clock.advance(passed_ms)
    assert delete_old_segments(log) == deleted
    assert offsets(log) == list(range(deleted, 4))
    assert log.log_start_offset == deleted
    assert log.segments.first.base_offset == deleted


def test_retention_uses_newest_record_of_segment(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log({"retention.ms": 1000})
    append(log, at=START_MS + 900)
    append(log, at=START_MS)
    log.roll()
    clock.advance(1900)
    assert delete_old_segments(log) == 0
    clock.advance(1)
    assert delete_old_segments(log) == 1


def test_retention_stops_at_first_young_segment(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log({"retention.ms": 1000})
    for at in (START_MS + 5000, START_MS, START_MS):
        append(log, at=at)
        log.roll()
    clock.advance(2000)
    assert delete_old_segments(log) == 0


def test_retention_uses_file_time_without_timestamps(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log({"retention.ms": 1000})
    append(log, at=-1)
    log.roll()
    clock.advance(1000)
    assert delete_old_segments(log) == 0
    clock.advance(1)
    assert delete_old_segments(log) == 1


def test_unlimited_retention(make_log: MakeLog, clock: ManualClock) -> None:
    log = segmented(make_log, {"retention.ms": -1})
    clock.advance(10**12)
    assert delete_old_segments(log) == 0


def test_whole_log_expires(make_log: MakeLog, clock: ManualClock) -> None:
    log = segmented(make_log, {"retention.ms": 1000})
    clock.advance(100_000)
    assert delete_old_segments(log) == 4
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (4, 4, 4)
    assert log.segments.bases == [4]
    assert offsets(log) == []
    assert delete_old_segments(log) == 0
    assert append(log, at=clock.time_ms()).base_offset == 4
    log.close()
    again = make_log()
    assert (again.log_start_offset, again.log_end_offset) == (4, 5)


def test_full_disk_keeps_active_segment(tmp_path: Path, clock: ManualClock) -> None:
    """There is no space for a new segment; deleting old ones frees some."""
    files = FaultyFileSystem()
    log = new_log(tmp_path, clock, {"retention.ms": 1000, "file.delete.delay.ms": 0}, files=files)
    for _ in range(2):
        append(log)
        log.roll()
    append(log)
    clock.advance(1001)
    files.fail("open", "*00000000000000000003.log", errno.ENOSPC)
    assert delete_old_segments(log) == 2
    assert (log.log_start_offset, offsets(log)) == (2, [2])
    files.heal()
    assert delete_old_segments(log) == 1
    assert (log.log_start_offset, offsets(log)) == (3, [])


# ---- by size


@pytest.mark.parametrize(
    ("keep_bytes", "deleted"), [(4 * SIZE, 0), (3 * SIZE + 1, 0), (3 * SIZE, 1), (SIZE, 3), (1, 3), (0, 4), (-1, 0)]
)
def test_deletes_segments_by_size(make_log: MakeLog, keep_bytes: int, deleted: int) -> None:
    """At least `retention.bytes` stay."""
    log = segmented(make_log, {"retention.bytes": keep_bytes})
    assert delete_old_segments(log) == deleted
    assert log.size_in_bytes == (4 - deleted) * SIZE
    assert log.log_start_offset == deleted


def test_no_size_limit_keeps_empty_segment(make_log: MakeLog) -> None:
    """As after compaction. Deleting it would move the log start offset."""
    log = segmented(make_log, {"cleanup.policy": "compact,delete", "retention.bytes": -1, "segment.bytes": 1024})
    append(log)
    job = plan_cleaning(log, CleanerConfig())
    assert job is not None
    job.config = dataclasses.replace(job.config, segment_bytes=1)  # so that segments are not merged
    assert finish_cleaning(log, job.run())
    assert [segment.size for segment in log.segments] == [0, 0, SIZE, 2 * SIZE]
    assert delete_old_segments(log) == 0
    assert log.log_start_offset == 0


# ---- by start offset


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_deletes_segments_below_log_start(make_log: MakeLog, policy: str) -> None:
    log = segmented(make_log, {"cleanup.policy": policy})
    assert log.delete_records(2) == 2
    assert log.segments.bases == [0, 1, 2, 3], "deleting records only moves the start"
    assert offsets(log) == [2, 3]
    assert delete_old_segments(log) == 2
    assert log.segments.bases == [2, 3]


def test_keeps_segment_with_one_readable_record(make_log: MakeLog) -> None:
    log = make_log()
    append(log, count=5)
    log.roll()
    append(log)
    log.delete_records(4)
    assert delete_old_segments(log) == 0
    log.delete_records(5)
    assert delete_old_segments(log) == 1


def test_compacted_log_has_no_retention(make_log: MakeLog, clock: ManualClock) -> None:
    log = segmented(make_log, {"cleanup.policy": "compact", "retention.ms": 1, "retention.bytes": 1})
    clock.advance(100_000)
    assert delete_old_segments(log) == 0


# ---- high watermark


@pytest.mark.parametrize(
    "properties", [{"retention.ms": 1}, {"retention.bytes": 0}], ids=lambda properties: next(iter(properties))
)
def test_keeps_segments_above_high_watermark(make_log: MakeLog, clock: ManualClock, properties: Properties) -> None:
    log = segmented(make_log, properties)
    log.update_high_watermark(2)
    clock.advance(100_000)
    assert delete_old_segments(log) == 2
    assert log.log_start_offset == 2
    log.update_high_watermark(3)
    assert delete_old_segments(log) == 1
    assert offsets(log) == [3]


# ---- delete_records


def test_delete_records_up_to_high_watermark(make_log: MakeLog) -> None:
    log = make_log()
    append(log, count=10)
    log.update_high_watermark(6)
    with pytest.raises(
        OffsetOutOfRangeError,
        match="log start offset of partition orders-0 to 7: it is greater than the high watermark 6",
    ):
        log.delete_records(7)
    assert log.log_start_offset == 0
    assert log.delete_records(6) == 6
    assert log.delete_records(3) == 6, "the start does not move back"
    assert log.delete_records(-1) == 6
    assert log.epochs.entries[0].start_offset == 6


# ---- files


def test_renames_files_and_removes_them_later(make_log: MakeLog, clock: ManualClock, tmp_path: Path) -> None:
    scheduler = Scheduler(clock)
    log = segmented(make_log, {"retention.bytes": 0, "file.delete.delay.ms": 5000}, count=1)
    log.close()
    log = make_log({"retention.bytes": 0, "file.delete.delay.ms": 5000}, scheduler=scheduler)
    log.update_high_watermark(1)
    assert delete_old_segments(log) == 1
    gone = {f"{0:020}{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")}
    assert gone <= names_in(tmp_path / str(TP))
    assert f"{0:020}.log" not in names_in(tmp_path / str(TP))
    clock.advance(4999)
    scheduler.tick()
    assert gone <= names_in(tmp_path / str(TP))
    clock.advance(1)
    scheduler.tick()
    assert not gone & names_in(tmp_path / str(TP))
