"""The number of open files is bounded, and every operation of a log works with files that were closed meanwhile."""

import errno
import os
from pathlib import Path

import pytest
from tests.support.storage.logs import MakeLog, append, make_batch

from headrace.records import decode_rows
from headrace.storage.files import FileSystem
from headrace.storage.loader import open_log
from headrace.storage.log import FetchIsolation
from headrace.storage.open_files import OpenFiles
from headrace.testing.disks import FaultyFileSystem


class Owner:
    def __init__(self) -> None:
        self.recently_used = False
        self.closings = 0

    def close_idle_file(self) -> None:
        self.closings += 1


def files_open_below(directory: Path) -> int:
    targets = (os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path))
    return sum(target.startswith(str(directory)) for target in targets)


def test_file_that_was_not_used_for_the_longest_time_closes_first() -> None:
    open_files, owners = OpenFiles(3), [Owner() for _ in range(4)]
    for owner in owners[:3]:
        open_files.open(owner, object)
    owners[0].recently_used = True
    open_files.open(owners[3], object)
    assert [owner.closings for owner in owners] == [0, 1, 0, 0]
    assert len(open_files) == 3


def test_file_that_its_owner_closed_does_not_count() -> None:
    open_files, owners = OpenFiles(2), [Owner() for _ in range(3)]
    for owner in owners[:2]:
        open_files.open(owner, object)
    open_files.closed(owners[0])
    open_files.open(owners[2], object)
    assert [owner.closings for owner in owners] == [0, 0, 0]


def test_idle_files_close_if_the_process_has_no_descriptor_left() -> None:
    open_files, owners = OpenFiles(100), [Owner() for _ in range(9)]
    for owner in owners[:8]:
        open_files.open(owner, object)
    attempts = 0

    def open_file() -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return "opened"

    assert open_files.open(owners[8], open_file) == "opened"
    assert [owner.closings for owner in owners] == [1, 1, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOENT])
def test_open_fails_if_nothing_can_be_closed(error: int) -> None:
    def fail() -> None:
        raise OSError(error, "no")

    with pytest.raises(OSError, match="no"):
        OpenFiles(3).open(Owner(), fail)


def test_limit_is_half_of_the_files_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, expected in ((1024, 512), (20, 16), (None, 1_000_000)):
        monkeypatch.setattr("headrace.storage.open_files.max_open_files", lambda limit=limit: limit)
        assert OpenFiles().max_files == expected


def test_many_segments_need_few_files(make_log: MakeLog, tmp_path: Path) -> None:
    files = FileSystem()
    files.open_files.max_files = 2
    log = make_log({"segment.bytes": 1024, "index.interval.bytes": 0}, files=files)
    for _ in range(30):
        append(log, value=b"x" * 400)
    assert len(log.segments) > 10
    for offset in range(30):
        read = log.read(offset, 1, FetchIsolation.HIGH_WATERMARK)
        assert read.slice is not None
        assert read.slice.batches()[0].base_offset == offset
    del read
    assert files_open_below(tmp_path) <= 2


def test_log_works_if_only_one_file_stays_open(make_log: MakeLog) -> None:
    files = FileSystem()
    files.open_files.max_files = 1
    log = make_log({"segment.bytes": 1024, "index.interval.bytes": 0}, files=files)
    for _ in range(20):
        append(log, value=b"x" * 400)
    log.flush()
    log.truncate_to(11)
    append(log)
    log.delete_records(3)
    assert log.find_timestamp(0) is not None
    log.close()
    again, report = open_log(log.directory, log.tp, log.config, log.context, clean=True, recovery_point=12)
    assert [batch.base_offset for batch in again.batches(3)] == list(range(3, 12))
    assert report.scanned_batches == 0


def test_slice_stays_readable_when_its_file_closes(make_log: MakeLog) -> None:
    files = FileSystem()
    log = make_log(files=files)
    append(log, make_batch(value=b"kept"))
    read = log.read(0, 1000)
    assert files.open_files.close_idle() == 1
    log.truncate_fully_and_start_at(0)
    assert read.slice is not None
    assert [record.value for record in decode_rows(read.slice.batches()[0].records())] == [b"kept"]


def test_append_closes_idle_files_if_there_is_no_descriptor(make_log: MakeLog) -> None:
    files = FaultyFileSystem()
    log, other = make_log(files=files), Owner()
    files.open_files.open(other, object)
    log.segments.active.release()
    files.fail("open", "*.log", errno.EMFILE, times=1)
    append(log)
    assert other.closings == 1
    assert log.log_end_offset == 1
