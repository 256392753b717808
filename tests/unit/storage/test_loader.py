"""Opening a log: recovery, rebuilt indexes, interrupted work, and rejected directories."""

import struct
from pathlib import Path
from typing import Any

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

from headrace.common.errors import CorruptRecordError, KafkaStorageError
from headrace.common.ids import make_random, random_uuid
from headrace.records import ControlType
from headrace.storage.checkpoints import write_partition_metadata
from headrace.storage.files import FileSystem
from headrace.storage.loader import LoadReport, open_log
from headrace.storage.log import FetchIsolation, Log
from headrace.testing.disks import FaultyFileSystem

SIZE = len(make_batch())
DENSE = {"index.interval.bytes": 0, "file.delete.delay.ms": 0}


class RecordingFileSystem(FaultyFileSystem):
    """Records its operations, with their paths."""

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self.operations: list[tuple[str, Path]] = []

    def before(self, operation: str, path: Path) -> None:
        self.operations.append((operation, path))
        super().before(operation, path)


def filled(make_log: MakeLog) -> Log:
    """Single records at 0 to 2 | 3 to 5 | 6, 7."""
    log = make_log(DENSE)
    for number in range(8):
        if number in (3, 6):
            log.roll()
        append(log, at=START_MS + number)
    return log


def reopen(log: Log, **options: Any) -> tuple[Log, LoadReport]:
    return open_log(log.directory, TP, log.config, log.context, **options)


def reopen_clean(log: Log) -> tuple[Log, LoadReport]:
    return reopen(log, clean=True, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset)


def offsets(log: Log) -> list[int]:
    return [offset for offset, _, _ in contents(log)]


def path_of(log: Log, base_offset: int, suffix: str = ".log") -> Path:
    return log.directory / f"{base_offset:020d}{suffix}"


# ---- clean shutdown


def test_clean_shutdown_needs_no_scan(make_log: MakeLog) -> None:
    log = filled(make_log)
    send(log, 1, 5)
    log.delete_records(2)
    log.close()
    again, report = reopen_clean(log)
    assert report == LoadReport()
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (2, 9, 9)
    assert again.high_watermark == 2, "what is replicated is for others to say"
    assert offsets(again) == list(range(2, 9))
    assert again.producers.entries[1].last_sequence == 5
    assert again.epochs.entries == [(0, 2)]
    assert again.max_timestamp() == (START_MS + 7, 7)
    assert append(again).base_offset == 9


def test_close_of_unchanged_log_writes_nothing(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.close()
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.directory.iterdir()}
    reopen_clean(log)[0].close()
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.directory.iterdir()} == before


def test_recovers_if_recovery_point_does_not_match_files(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.close()
    again, report = reopen(log, clean=True, recovery_point=5)
    assert report.scanned_batches == 3, "from the recovery point on"
    assert offsets(again) == list(range(8))


def test_clean_shutdown_with_preallocated_segment_needs_no_scan(make_log: MakeLog) -> None:
    log = make_log({"preallocate": True, "segment.bytes": 2048})
    append(log)
    log.roll()
    log.close()
    assert path_of(log, 1).stat().st_size == 0
    assert reopen_clean(log)[1] == LoadReport()


# ---- crash recovery


@pytest.mark.parametrize(
    ("recovery_point", "scanned"), [(None, 8), (0, 8), (1, 7), (3, 5), (5, 3), (6, 2), (7, 1), (8, 0)]
)
def test_crash_recovery_scans_from_recovery_point(make_log: MakeLog, recovery_point: int | None, scanned: int) -> None:
    log = filled(make_log)
    log.abandon()
    again, report = reopen(log, recovery_point=recovery_point)
    assert (report.scanned_batches, report.scanned_bytes, report.truncated_bytes) == (scanned, scanned * SIZE, 0)
    assert offsets(again) == list(range(8))
    assert again.max_timestamp() == (START_MS + 7, 7)
    for offset in range(8):
        assert again.find_timestamp(START_MS + offset) == (START_MS + offset, offset)


@pytest.mark.parametrize("left_bytes", [0, 1, 11, 12, 60, 61, SIZE - 1])
def test_recovery_truncates_torn_batch(make_log: MakeLog, left_bytes: int) -> None:
    log = filled(make_log)
    log.abandon()
    with path_of(log, 6).open("r+b") as file:
        file.truncate(SIZE + left_bytes)
    again, report = reopen(log, recovery_point=6)
    assert report.truncated_bytes == left_bytes
    assert offsets(again) == list(range(7))
    assert path_of(log, 6).stat().st_size == SIZE
    assert append(again).base_offset == 7


def test_recovery_truncates_at_wrong_crc(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.abandon()
    data = bytearray(path_of(log, 3).read_bytes())
    data[2 * SIZE - 1] ^= 1
    path_of(log, 3).write_bytes(data)
    again, report = reopen(log, recovery_point=3)
    assert offsets(again) == [0, 1, 2, 3]
    assert again.segments.bases == [0, 3]
    assert report.truncated_bytes == 4 * SIZE


def test_recovery_syncs_removal_of_segments(make_log: MakeLog) -> None:
    """Otherwise a power loss could bring a removed segment back after newly appended batches."""
    disk = RecordingFileSystem()
    log = make_log(DENSE, files=disk)
    for _ in range(3):
        append(log)
        log.roll()
    log.abandon()
    data = bytearray(path_of(log, 0).read_bytes())
    data[-1] ^= 1
    path_of(log, 0).write_bytes(data)
    disk.operations.clear()
    again, _ = reopen(log, recovery_point=0)
    assert again.segments.bases == [0]
    removed_logs = [path for operation, path in disk.operations if operation == "remove" and path.suffix == ".log"]
    assert removed_logs == [path_of(log, 3), path_of(log, 2), path_of(log, 1)]
    last_removal = disk.operations.index(("remove", path_of(log, 1)))
    assert disk.operations[last_removal + 1 :][:1] == [("sync_directory", log.directory)]


def test_recovery_syncs_records_that_must_be_on_disk(make_log: MakeLog) -> None:
    """A process may die between a write and its sync. Its next one serves the record: leader and followers count it."""
    disk = RecordingFileSystem()
    log = make_log({"flush.messages": 1}, files=disk)
    append(log)
    disk.fail("sync", "*.log")
    with pytest.raises(KafkaStorageError):
        append(log)
    log.abandon()
    disk.heal()
    disk.operations.clear()
    again, _ = reopen(log, recovery_point=1)
    assert (again.log_end_offset, again.recovery_point) == (2, 2)
    assert ("sync", path_of(log, 0)) in disk.operations


def test_recovery_truncates_at_offsets_out_of_order(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.abandon()
    with path_of(log, 6).open("ab") as file:
        file.write(make_batch(base_offset=7))
    again, report = reopen(log, recovery_point=6)
    assert (offsets(again), report.truncated_bytes) == (list(range(8)), SIZE)


def test_recovery_truncates_at_offset_too_far_from_base(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.abandon()
    with path_of(log, 6).open("ab") as file:
        file.write(make_batch(base_offset=6 + 2**31))
    again, report = reopen(log, recovery_point=6)
    assert (again.log_end_offset, report.truncated_bytes) == (8, SIZE)


def test_log_that_ends_below_log_start_restarts_there(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.abandon()
    again, _ = reopen(log, recovery_point=0, log_start_offset=100)
    assert (again.log_start_offset, again.log_end_offset, again.segments.bases) == (100, 100, [100])
    assert append(again).base_offset == 100


def test_recovers_transactions_across_recovery_point(make_log: MakeLog) -> None:
    log = make_log(DENSE)
    send(log, 1, transactional=True)
    send(log, 2, transactional=True)
    log.flush()
    end_transaction(log, 1, ControlType.ABORT)
    before = log.segments.active.txn_index.entries()
    log.abandon()
    again, report = reopen(log, recovery_point=2)
    assert report.scanned_batches == 1
    assert again.segments.active.txn_index.entries() == before
    again.update_high_watermark(3)
    assert again.last_stable_offset == 1
    aborted = again.read(0, 1000, FetchIsolation.TXN_COMMITTED).aborted
    assert aborted is not None
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted] == [(1, 0, 2)]


# ---- rebuilding


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [None, b"\0" * 5], ids=["missing", "torn"])
def test_rebuilds_damaged_index(make_log: MakeLog, suffix: str, content: bytes | None) -> None:
    log = filled(make_log)
    log.close()
    path = path_of(log, 3, suffix)
    good = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    again, report = reopen_clean(log)
    assert report == LoadReport(rebuilt_indexes=1)
    assert offsets(again) == list(range(8))
    assert path.read_bytes() == good


@pytest.mark.parametrize(("suffix", "entry_bytes"), [(".index", 8), (".timeindex", 12)])
def test_recovery_rebuilds_torn_index_below_recovery_point(make_log: MakeLog, suffix: str, entry_bytes: int) -> None:
    log = make_log(DENSE)
    for number in range(8):
        append(log, at=START_MS + number)
    log.close()
    path = path_of(log, 0, suffix)
    good = path.read_bytes()
    path.write_bytes(good[: 2 * entry_bytes + 1])
    again, report = reopen(log, recovery_point=6)
    assert (report.rebuilt_indexes, report.scanned_batches) == (1, 2)
    assert offsets(again) == list(range(8))
    assert path.read_bytes() == good


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param((2, 1), id="points into a batch"),
        pytest.param((2, 10**6), id="points behind the end"),
        pytest.param((1, 2 * SIZE), id="points at another batch"),
        pytest.param((2, -5), id="points before the beginning"),
        pytest.param((-3, 7), id="names an offset of another segment"),
    ],
)
def test_lookup_rebuilds_wrong_offset_index(make_log: MakeLog, entry: tuple[int, int]) -> None:
    log = filled(make_log)
    log.close()
    path = path_of(log, 3, ".index")
    good = path.read_bytes()
    path.write_bytes(struct.pack(">ii", *entry))
    again, _ = reopen_clean(log)
    found = again.read(5, 1).slice
    assert found is not None
    assert found.base_offset == 5
    assert path.read_bytes() == good


def test_lookup_rebuilds_wrong_time_index(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.close()
    path = path_of(log, 3, ".timeindex")
    good = path.read_bytes()
    path.write_bytes(struct.pack(">qi", START_MS + 3, 1) + good[-12:])
    again, _ = reopen_clean(log)
    assert again.find_timestamp(START_MS + 4) == (START_MS + 4, 4)
    assert path.read_bytes() == good


def test_truncation_rebuilds_wrong_index(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.close()
    path_of(log, 6, ".index").write_bytes(struct.pack(">ii", 1, 0))
    again, _ = reopen_clean(log)
    again.truncate_to(7)
    assert offsets(again) == list(range(7))
    assert path_of(log, 6).stat().st_size == SIZE


def test_rebuilds_transaction_index(make_log: MakeLog) -> None:
    log = make_log(DENSE)
    send(log, 1, transactional=True)
    log.roll()
    end_transaction(log, 1, ControlType.ABORT)
    before = log.segments.active.txn_index.entries()
    log.close()
    path = path_of(log, 1, ".txnindex")
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    again, report = reopen_clean(log)
    assert again.segments.active.txn_index.entries() == before
    assert path.read_bytes() == good, "after a kill, the next start would trust the empty file"
    assert report == LoadReport(rebuilt_indexes=1)


def test_restores_producers_despite_damaged_index(make_log: MakeLog) -> None:
    """Without the last snapshot, the state is restored from an older one and the batches behind it, which a damaged
    index does not find."""
    log = make_log(DENSE)
    for sequence in range(3):
        send(log, 1, sequence)
    log.close()
    log, _ = reopen_clean(log)
    for sequence in range(3, 6):
        send(log, 1, sequence)
    log.close()
    (log.directory / f"{6:020}.snapshot").unlink()
    assert (log.directory / f"{3:020}.snapshot").exists()
    index = path_of(log, 0, ".index")
    entries = index.read_bytes()
    index.write_bytes(
        b"".join(entries[at : at + 4] + struct.pack(">i", 7) for at in range(0, len(entries) - 8, 8)) + entries[-8:]
    )
    again, _ = reopen_clean(log)
    assert again.producers.entries[1].last_sequence == 5
    assert send(again, 1, 5).duplicate


def test_restores_producers_of_shortened_log_despite_damaged_index(make_log: MakeLog) -> None:
    """The last snapshot is of a batch that is lost. The index is damaged where the older snapshot ends, and its last
    entry is valid."""
    log = make_log(DENSE)
    for sequence in range(3):
        send(log, 1, sequence)
    log.close()
    log, _ = reopen_clean(log)
    for sequence in range(3, 6):
        send(log, 1, sequence)
    log.close()
    size = path_of(log, 0).stat().st_size // 6
    with path_of(log, 0).open("r+b") as file:
        file.truncate(5 * size)
    wrong_entries = [(offset, offset * size + 1) for offset in range(1, 4)]
    path_of(log, 0, ".index").write_bytes(
        b"".join(struct.pack(">ii", *entry) for entry in [*wrong_entries, (4, 4 * size)])
    )
    again, _ = reopen(log, recovery_point=6)
    assert again.log_end_offset == 5
    assert again.producers.entries[1].last_sequence == 4
    assert send(again, 1, 4).duplicate


@pytest.mark.parametrize("content", [None, b"", b"no checkpoint", b"0\n1\n7 3\n"])
def test_rebuilds_leader_epochs(make_log: MakeLog, content: bytes | None) -> None:
    log = make_log(DENSE)
    for epoch in (0, 0, 2, 5):
        log.append_as_leader(make_batch(), leader_epoch=epoch)
    log.close()
    path = log.directory / "leader-epoch-checkpoint"
    path.unlink() if content is None else path.write_bytes(content)
    assert reopen_clean(log)[0].epochs.entries == [(0, 0), (2, 2), (5, 3)]


# ---- interrupted work


def test_removes_leftover_files(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.close()
    before = names_in(log.directory)
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000003.log.cleaned",
        "00000000000000000003.index.cleaned",
        "00000000000000000003.timeindex.swap",
        "00000000000000000099.index",
        "leader-epoch-checkpoint.tmp",
    ):
        (log.directory / name).write_bytes(b"rest")
    again, report = reopen_clean(log)
    assert report == LoadReport(removed_files=6)
    assert names_in(log.directory) == before
    assert offsets(again) == list(range(8))


def test_ignores_other_files(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.close()
    (log.directory / "notes.txt").write_text("mine")
    again, report = reopen_clean(log)
    assert report == LoadReport()
    assert (again.directory / "notes.txt").read_text() == "mine"


def test_completes_interrupted_swap(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.close()
    data = path_of(log, 0).read_bytes()[2 * SIZE :] + path_of(log, 3).read_bytes()[2 * SIZE :]
    path_of(log, 0, ".log.swap").write_bytes(data)
    again, report = reopen_clean(log)
    assert report.finished_swaps == 1
    assert again.segments.bases == [0, 6]
    assert offsets(again) == [2, 5, 6, 7]
    assert not [name for name in names_in(log.directory) if name.endswith(".swap")]


# ---- rejected directories


def test_rejects_log_of_other_topic_id(make_log: MakeLog) -> None:
    log = filled(make_log)
    log.close()
    source = make_random(1)
    ours, theirs = random_uuid(source), random_uuid(source)
    write_partition_metadata(log.directory, theirs, FileSystem())
    with pytest.raises(KafkaStorageError) as refused:
        reopen(log, topic_id=ours)
    assert str(refused.value) == f"Log directory {log.directory} belongs to topic id {theirs}, not {ours}"
    assert reopen(log)[0].topic_id == theirs


def test_rejects_directory_that_is_a_file(make_log: MakeLog, tmp_path: Path) -> None:
    (tmp_path / str(TP)).write_bytes(b"")
    with pytest.raises(KafkaStorageError, match=rf"Cannot open {tmp_path / str(TP)}: "):
        make_log()


def test_reader_detects_damage_below_recovery_point(make_log: MakeLog) -> None:
    """The log is not truncated: later batches can still be read."""
    log = filled(make_log)
    log.close()
    data = bytearray(path_of(log, 0).read_bytes())
    data[SIZE + 16] = 9
    path_of(log, 0).write_bytes(data)
    again, _ = reopen_clean(log)
    with pytest.raises(CorruptRecordError, match="magic 9"):
        batches_of(again)
    found = again.read(2, 1).slice
    assert found is not None
    assert [batch.base_offset for batch in found.batches()] == [2]
